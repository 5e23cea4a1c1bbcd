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
#include "steelyard/export/tflite.h"
#include "steelyard/export/tflite_nodes.h"
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
