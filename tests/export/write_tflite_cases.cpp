// Writes TFLite models beside what the interpreter computes, for check_tflite.py.
//
// usage: write_tflite_cases FOLDER [RANDOM_GRAPHS [GRAPHS_OF_EACH_OPERATION
// [tflm_single_rounding]]], or of one model write_tflite_cases FOLDER MODEL.safetensors
// DATA.safetensors with `inputs`. NAME.tflite, and NAME.safetensors with the codes of every tensor
// by its name in the file; the metadata "tensors" has the names in the file's order. Graphs of one
// operation are op-OPERATION-SEED, streams, whose samples are the calls of one sequence,
// stream-NAME.
#include <algorithm>
#include <filesystem>
#include <string>

#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/export/stream_windows.h"
#include "steelyard/export/tflite/tflite.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/data/normalization.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/runtime/graph_file.h"
#include "tests/export/export_support.h"
#include "tests/export/keyword_net.h"
#include "tests/export/operation_graph.h"
#include "tests/export/random_graph.h"
#include "tests/export/stream_graph.h"

namespace steelyard::deploy {
namespace {

using testing::conv;
using testing::images;
using testing::quantized_model;
using testing::RandomGraph;

constexpr int kRandomGraphs = 120, kGraphsOfEachOperation = 4;

void write_case(const std::filesystem::path& folder, const std::string& name, const Graph& graph,
                const Tensor& inputs, bool pack_int4 = true) {
  write_tflite(folder / (name + ".tflite"), graph, {.pack_int4 = pack_int4});
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

// Calls, the first of which fill the window with the zero point and are not compared.
void write_stream(const std::filesystem::path& folder, const std::string& name, const Graph& whole,
                  const StreamOptions& options) {
  const Stream stream = stream_of(whole, options);
  const std::int64_t before = stream.window_calls();
  const Tensor codes = noise_of_calls(stream, 2 * before + 10, 3);
  const Quantization& q = *whole.values[input_codes(whole)].quantization;
  std::fill_n(codes.data<std::int8_t>(), before * (codes.size() / codes.dim(0)),
              static_cast<std::int8_t>(q.zero_point));
  write_tflite(folder / (name + ".tflite"), whole, {.stream = options});
  TensorFile file;
  file.tensors = {{"input", codes}, {"output", stream_outputs(stream, whole, codes)}};
  file.metadata = {{"tensors", "output"}, {"calls_before", std::to_string(before)}};
  write_safetensors(folder / (name + ".safetensors"), file);
}

void write_streams(const std::filesystem::path& folder, int streams, qat::Profile profile) {
  write_stream(folder, "stream-keyword", testing::keyword_graph(8, profile, {0, 0}), {.frames = 2});
  for (int seed = 0, written = 0; written < streams; ++seed) {
    const testing::StreamGraph random(static_cast<unsigned>(seed), rounding_of(profile));
    if (!random.is_stream()) continue;
    write_stream(folder, "stream-" + std::to_string(seed), random.graph(), random.options());
    ++written;
  }
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
                   std::shared_ptr<Module> (*network)(Rng&), const qat::QuantizeConfig& config,
                   bool pack_int4 = true) {
  Rng rng(2);
  const auto model = quantized_model(network(rng), config);
  write_case(folder, name, trace(*model, images(2, 8), name).graph, images(40, 7), pack_int4);
}

// Scales of which many products lie between two codes, or next to such a place: float factors give
// other codes than those of doubles.
struct Tie {
  float in_scale, scale, slope;
  std::int32_t in_zero_point, zero_point;
};
constexpr Tie kTies[] = {{0.0121643813F, 0.0104266126F, 0.3F, -40, -28},
                         {0.109190635F, 0.0524115041F, 0.5F, -31, 2},
                         {0.0211098138F, 0.0361882523F, 0.5F, 43, -47},
                         {0.0137715247F, 0.00383510813F, 0.25F, -34, -41},
                         {0.00748940557F, 0.00449364353F, 0.3F, 53, -50}};

void write_ties(const std::filesystem::path& folder, kernels::Rounding rounding) {
  int number = 0;
  for (const Tie& tie : kTies) {
    for (const std::string operation : {"leaky_relu", "hardswish"}) {
      const testing::OperationGraph one(operation, 1, rounding);
      Graph graph = one.graph();
      Quantization& in = *graph.values[input_codes(graph)].quantization;
      const Tensor inputs = Tensor::empty(one.inputs().shape());
      for (std::int64_t i = 0; i < inputs.size(); ++i) {
        const auto code = static_cast<std::int32_t>(i % 256) - 128 - tie.in_zero_point;
        inputs.data<float>()[i] = static_cast<float>(code) * tie.in_scale;
      }
      in.scale = tie.in_scale;
      in.zero_point = tie.in_zero_point;
      Quantization& out = *graph.values[graph.output].quantization;
      out.scale = tie.scale;
      out.zero_point = tie.zero_point;
      if (operation == "leaky_relu") {
        graph.nodes.back().as<NegativeSlope>().slope = static_cast<double>(tie.slope);
      }
      write_case(folder, "op-" + operation + "_of_ties-" + std::to_string(number), graph, inputs);
    }
    // A sum of the bias alone, half way between what the two factors make a tie.
    const testing::OperationGraph one("linear_of_one_output", 1, rounding);
    Graph graph = one.graph();
    Node& node = graph.nodes.back();
    node.activation = kernels::Activation::kNone;
    std::fill_n(node.weights->weight.data<std::int8_t>(), node.weights->weight.size(),
                std::int8_t{0});
    const float in_scale = graph.values[node.inputs[0]].quantization->scale;
    node.weights->scales = {tie.in_scale};
    Quantization& out = *graph.values[graph.output].quantization;
    out.scale = in_scale * tie.in_scale * 16777216.0F;
    out.zero_point = 0;
    const double of_doubles = static_cast<double>(in_scale) * static_cast<double>(tie.in_scale);
    const auto of_floats = static_cast<double>(in_scale * tie.in_scale);
    const double sum = 50.5 * static_cast<double>(out.scale);
    node.weights->bias = Tensor::from(std::vector<std::int32_t>{static_cast<std::int32_t>(
                                          (sum / of_doubles + sum / of_floats) / 2)},
                                      {1});
    write_case(folder, "op-linear_of_one_output_of_ties-" + std::to_string(number++), graph,
               one.inputs());
  }
}

void write_all(const std::filesystem::path& folder, int random_graphs, int of_each_operation,
               qat::Profile profile) {
  const kernels::Rounding rounding = rounding_of(profile);
  std::filesystem::create_directories(folder);
  write_network(folder, "layers", testing::fixed_point_net, testing::tflm(8, profile));
  write_network(folder, "layers_w4", testing::fixed_point_net, testing::tflm(4, profile));
  write_network(folder, "layers_w4_int8", testing::fixed_point_net, testing::tflm(4, profile),
                false);
  write_network(folder, "residual", testing::residual_net, testing::tflm(8, profile));
  write_network(folder, "functions", testing::fixed_functions_net, testing::tflm(8, profile));
  write_network(folder, "lstm", testing::fixed_lstm_net, testing::tflm(8, profile));
  qat::QuantizeConfig convolutions = testing::tflm(8, profile);
  convolutions.groups[0].targets = {"Conv2d"};
  write_network(folder, "flat", flat_net, convolutions);
  write_network(folder, "rows", rows_net, testing::tflm(8, profile));
  write_case(folder, "keyword", testing::keyword_graph(8, profile), testing::frames(3, 7));
  write_streams(folder, random_graphs / 4, profile);
  write_ties(folder, rounding);
  for (int i = 0; i < random_graphs; ++i) {
    const RandomGraph random(static_cast<unsigned>(i), DType::kI8, rounding, i % 3 == 2 ? 4 : 8);
    write_case(folder, "random" + std::to_string(i), random.graph(), random.inputs());
  }
  const auto write_operation = [&](std::string_view operation, const char* kind, int i, int bits) {
    const testing::OperationGraph graph(operation, static_cast<unsigned>(i), rounding, bits);
    write_case(folder, "op-" + std::string(operation) + kind + "-" + std::to_string(i),
               graph.graph(), graph.inputs());
  };
  for (int i = 0; i < of_each_operation; ++i) {
    for (const std::string_view operation : testing::kFixedOperations) {
      write_operation(operation, "", i, 8);
    }
    for (const std::string_view operation : testing::kFixedProducts) {
      write_operation(operation, "_of_few_bits", i, 4 - i % 3);
    }
  }
}

// An exported model on samples as the data have them.
void write_model(const std::filesystem::path& folder, const std::string& model,
                 const std::string& data) {
  std::filesystem::create_directories(folder);
  const Graph graph = load_graph(model);
  const Tensor inputs = read_safetensors(data).tensors.at(0).tensor;
  write_case(folder, "model", graph, normalized(inputs, graph.preprocessing.normalization));
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argc == 4 && std::string(argv[2]).ends_with(".safetensors")) {
    steelyard::deploy::write_model(argv[1], argv[2], argv[3]);
    return 0;
  }
  using steelyard::qat::Profile;
  const auto count = [&](int i, int usual) { return argc > i ? std::stoi(argv[i]) : usual; };
  const bool once = argc > 4 && std::string(argv[4]) == "tflm_single_rounding";
  steelyard::deploy::write_all(argv[1], count(2, steelyard::deploy::kRandomGraphs),
                               count(3, steelyard::deploy::kGraphsOfEachOperation),
                               once ? Profile::kTflmSingleRounding : Profile::kTflm);
  return 0;
}
