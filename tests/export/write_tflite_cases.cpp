// Writes TFLite models beside what the interpreter computes, for check_tflite.py.
//
// usage: write_tflite_cases FOLDER [RANDOM_GRAPHS [IMAGES [MODEL.safetensors]...]]. NAME.tflite,
// and NAME.safetensors with the codes of every tensor by its name in the file; the metadata
// "tensors" has the names in the file's order. IMAGES of Fashion-MNIST are given to the presets'
// networks, whose weights are random, and to the exported models of Fashion-MNIST that are named.
#include <filesystem>
#include <string>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/tflite.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/recipes/runs/deployment.h"
#include "tests/export/export_support.h"
#include "tests/export/random_graph.h"

namespace steelyard::deploy {
namespace {

using testing::conv;
using testing::images;
using testing::quantized_model;
using testing::RandomGraph;

constexpr int kRandomGraphs = 120, kImages = 20;

void write_case(const std::filesystem::path& folder, const std::string& name, const Graph& graph,
                const Tensor& inputs) {
  write_tflite(folder / (name + ".tflite"), graph);
  const std::vector<Tensor> values = Interpreter(graph).run_all(inputs);
  TensorFile file;
  std::string names;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!graph.values[i].quantization) continue;
    const bool is_input = graph.nodes[0].output == i;  // the quantizer of the model's input
    const std::string tensor = is_input            ? graph.input_port.name
                               : i == graph.output ? graph.output_port.name
                                                   : graph.values[i].name;
    names += (names.empty() ? "" : "\n") + tensor;
    // What a linear layer reads from a flattened image has another order in the file.
    if (tflite_flattened(graph, i) == nullptr) file.tensors.push_back({tensor, values[i]});
  }
  file.metadata = {{"tensors", names}};
  write_safetensors(folder / (name + ".safetensors"), file);
}

// [N, 9, 8, 3]: a flattened image as the output, and features in rows.
std::shared_ptr<Module> flat_net(Rng& rng) {
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", conv(3, 5, 3, 2, rng)},
      {"pool", std::make_shared<AvgPool2d>(AvgPool2dOptions{{{2, 2}, {2, 2}, {0, 0}}})},
      {"flatten", std::make_shared<Flatten>()}});
}
std::shared_ptr<Module> rows_net(Rng& rng) {
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", conv(3, 4, 3, 2, rng)},
      {"rows", std::make_shared<Reshape>(Shape{-1, 20, 4})},
      {"fc1", std::make_shared<Linear>(LinearOptions{4, 6}, rng)},
      {"relu", std::make_shared<ReLU6>()},
      {"fc2", std::make_shared<Linear>(LinearOptions{6, 1, false}, rng)}});
}

void write_network(const std::filesystem::path& folder, const std::string& name,
                   std::shared_ptr<Module> (*network)(Rng&), const qat::QuantizeConfig& config) {
  Rng rng(2);
  const auto model = quantized_model(network(rng), config);
  write_case(folder, name, trace(*model, images(2, 8), name).graph, images(40, 7));
}

Tensor normalized_images(const Graph& graph, const Dataset& data, int images) {
  const Tensor inputs = load_samples(spread_samples(data, images)).inputs;
  return normalized(inputs, graph.preprocessing.normalization);
}

// The network of a preset in fixed point, its observers having seen two batches, and with the cnn
// the models that were trained.
void write_preset(const std::filesystem::path& folder, const std::string& name, int images,
                  const std::vector<std::string>& models) {
  const Registries registries;
  Recipe recipe = load_recipe("fashion-mnist-" + name + "-w8a8",
                              {"data.batch_size=64", "export.profile=tflm"}, registries);
  recipe.init_checkpoint.reset();
  Experiment experiment(std::move(recipe), registries, InitialWeights::kRecipe);
  const NoGradGuard no_grad;
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  for (std::int64_t i = 0; i < 2; ++i) {
    const Batch batch = make_batch(experiment.train(), experiment.loader_options(), 0, i);
    experiment.model().forward(Variable(batch.inputs), training);
  }
  const Graph graph = deployed_graph(experiment);
  write_case(folder, "preset_" + name, graph, normalized_images(graph, experiment.test(), images));
  if (name != "cnn") return;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const Graph trained = load_graph(models[i]);
    write_case(folder, "trained" + std::to_string(i), trained,
               normalized_images(trained, experiment.test(), images));
  }
}

void write_all(const std::filesystem::path& folder, int random_graphs, int images,
               const std::vector<std::string>& models) {
  std::filesystem::create_directories(folder);
  for (const char* name : {"mlp", "cnn", "resnet", "mobilenet"}) {
    write_preset(folder, name, images, models);
  }
  write_network(folder, "layers", testing::fixed_point_net, testing::tflm(8));
  write_network(folder, "layers_w4", testing::fixed_point_net, testing::tflm(4));
  write_network(folder, "residual", testing::residual_net, testing::tflm(8));
  qat::QuantizeConfig convolutions = testing::tflm(8);
  convolutions.groups[0].targets = {"Conv2d"};
  write_network(folder, "flat", flat_net, convolutions);
  write_network(folder, "rows", rows_net, testing::tflm(8));
  for (int i = 0; i < random_graphs; ++i) {
    const RandomGraph random(static_cast<unsigned>(i), DType::kI8, kernels::Rounding::kFixedTwice);
    write_case(folder, "random" + std::to_string(i), random.graph(), random.inputs());
  }
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  using namespace steelyard::deploy;
  const int random_graphs = argc > 2 ? std::stoi(argv[2]) : kRandomGraphs;
  const int images = argc > 3 ? std::stoi(argv[3]) : kImages;
  const std::vector<std::string> models(argv + std::min(argc, 4), argv + argc);
  write_all(argv[1], random_graphs, images, models);
  return 0;
}
