// Writes ONNX models beside what the interpreter computes, for check_onnx.py.
//
// usage: write_onnx_cases FOLDER [RANDOM_GRAPHS [deployed]]. NAME.onnx, and NAME.safetensors with
// "input" and every value by its name, images as [N, C, H, W]; the metadata says what is expected
// of ONNX Runtime. With `deployed` for compare_deployed (tests/runtime/deployed), also of graphs
// that are not for ONNX: NAME.deployed.safetensors, and NAME.values.safetensors with the values as
// the interpreter has them.
#include <cmath>
#include <filesystem>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/framework/files/safetensors.h"
#include "tests/export/export_support.h"
#include "tests/export/float_nets.h"
#include "tests/export/random_graph.h"
#include "tests/support/attention_net.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::quantized_model;
using testing::w8a8;

// [N, H, W, C] as [N, C, H, W].
Tensor turned(const Tensor& x) {
  const std::int64_t pixels = x.dim(1) * x.dim(2), channels = x.dim(3);
  const std::size_t bytes = dtype_bytes(x.dtype());
  const Tensor y = Tensor::empty({x.dim(0), channels, x.dim(1), x.dim(2)}, x.dtype());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t image = i / (pixels * channels);
    const std::int64_t pixel = i / channels % pixels;
    const auto to = static_cast<std::size_t>((image * channels + i % channels) * pixels + pixel);
    std::copy_n(static_cast<const char*>(x.raw()) + static_cast<std::size_t>(i) * bytes, bytes,
                static_cast<char*>(y.raw()) + to * bytes);
  }
  return y;
}

struct Expected {
  bool exact = true;              // every code
  std::string operators = {};     // that the optimised graph holds, separated by spaces
  std::string no_operators = {};  // that it does not hold
  bool in_numpy = false;          // check_integer_models.py runs it too
  double distance = INFINITY;     // most of the outputs, of the largest one
};

class Writer {
 public:
  Writer(std::filesystem::path folder, bool deployed)
      : folder_(std::move(folder)), deployed_(deployed) {}

  void write_deployed(const std::string& name, const Graph& graph,
                      const std::vector<Tensor>& values) const {
    if (!deployed_) return;
    save_graph(folder_ / (name + ".deployed.safetensors"), graph);
    TensorFile file;
    for (std::size_t i = 0; i < values.size(); ++i) {
      file.tensors.push_back({graph.values[i].name, values[i]});
    }
    write_safetensors(folder_ / (name + ".values.safetensors"), file);
  }

  void write(const std::string& name, const Graph& graph, const Tensor& inputs,
             const Expected& expected, const OnnxOptions& options = {}) const {
    write_onnx(folder_ / (name + ".onnx"), graph, options);
    if (expected.in_numpy) save_graph(folder_ / (name + ".model.safetensors"), graph);
    TensorFile file;
    const std::vector<Tensor> values = Interpreter(graph).run_all(inputs);
    write_deployed(name, graph, values);
    const std::vector<bool> first = channels_first(graph);
    for (std::size_t i = 0; i < values.size(); ++i) {
      file.tensors.push_back({graph.values[i].name, first[i] ? turned(values[i]) : values[i]});
    }
    const bool image = graph.values[graph.output].shape.size() == 3;
    const Tensor output = dequantized(graph.values[graph.output], values[graph.output]);
    file.tensors.push_back({"output", image ? turned(output) : output});
    file.metadata = {{"exact", expected.exact ? "yes" : "no"},
                     {"operators", expected.operators},
                     {"no_operators", expected.no_operators},
                     {"distance", std::to_string(expected.distance)}};
    write_safetensors(folder_ / (name + ".safetensors"), file);
  }

  void write_network(const std::string& name, std::shared_ptr<Module> (*network)(Rng&),
                     const qat::QuantizeConfig& config, const Expected& expected,
                     const OnnxOptions& options = {}) const {
    Rng rng(2);
    const auto model = quantized_model(network(rng), config);
    Graph graph = trace(*model, images(2, 8), name).graph;
    graph.preprocessing = {DType::kU8, {{0.5F, 0.25F, 0.125F}, {0.5F, 1.0F, 2.0F}}};
    write(name, graph, images(40, 7), expected, options);
  }

 private:
  std::filesystem::path folder_;
  bool deployed_;
};

// A model whose quantized layers are those of `targets`, none of them included.
Graph traced(std::shared_ptr<Module> (*network)(Rng&), const std::vector<std::string>& targets) {
  Rng rng(2);
  qat::QuantizeConfig config = w8a8();
  config.groups[0].targets = targets;
  const auto model = targets.empty() ? network(rng) : quantized_model(network(rng), config);
  return trace(*model, images(2, 8), "net").graph;
}

// Codes of rows [5, 8], joined with their rectified selves along the 8.
Graph joined_rows() {
  const Quantization narrow{{0.02F, 90}, {0, 255}, DType::kU8};
  const Quantization wide{{0.03F, 0}, {0, 255}, DType::kU8};
  Graph graph;
  graph.name = "rows";
  graph.values = {{"input", {5, 8}, {}},
                  {"codes", {5, 8}, narrow},
                  {"relu", {5, 8}, narrow},
                  {"join", {5, 16}, wide}};
  const auto add = [&](Op op, std::vector<std::size_t> inputs) {
    Node node;
    node.op = op;
    node.options = op_info(op).options;
    node.output = graph.nodes.size() + 1;
    node.name = graph.values[node.output].name;
    node.inputs = std::move(inputs);
    graph.nodes.push_back(node);
  };
  add(Op::kQuantize, {0});
  add(Op::kRelu, {1});
  add(Op::kConcat, {1, 2});
  graph.output = 3;
  return graph;
}

void write_cases(const Writer& writer, unsigned random_graphs) {
  const std::string no_floats = "Conv Gemm Add AveragePool GlobalAveragePool FusedConv FusedGemm";
  const Expected layers{true, "QLinearConv QGemm", no_floats};
  const Expected residual{true, "QLinearConv QGemm QLinearAdd QLinearGlobalAveragePool", no_floats};
  const Expected concat{true, "QLinearConv QGemm QLinearConcat", no_floats + " Concat"};
  const Expected floats{false, "QLinearConv QGemm Conv", ""};
  const Expected close{false, "", ""};
  const auto in_numpy = [](Expected expected) {
    expected.in_numpy = true;
    return expected;
  };
  OnnxOptions int8;
  int8.pack_int4 = false;
  OnnxOptions tensorrt;
  tensorrt.profile = qat::Profile::kTensorrt;
  writer.write_network("layers", testing::every_layer, w8a8(), in_numpy(layers));
  writer.write_network("layers_signed", testing::every_layer, w8a8(8, true), layers);
  writer.write_network("layers_w4", testing::every_layer, w8a8(4), close);
  writer.write_network("layers_w4_as_int8", testing::every_layer, w8a8(4), layers, int8);
  writer.write_network("layers_affine_w8", testing::every_layer, testing::affine_weights(8),
                       in_numpy(layers));
  writer.write_network("layers_affine_w4", testing::every_layer, testing::affine_weights(4), close);
  writer.write_network("residual_affine_w7", testing::residual_net, testing::affine_weights(7),
                       residual);
  // Sums in integers; what has no integer kernel in float between quantizers, which is exact too.
  const Expected arithmetic{true, "QLinearConv QLinearAdd Sub Div Mul Max", "Conv Gemm"};
  writer.write_network("arithmetic", testing::arithmetic_net, w8a8(), arithmetic);
  writer.write_network("arithmetic_signed", testing::arithmetic_net, w8a8(8, true), arithmetic);
  const Expected joined{true, "QLinearConv Concat Where", "Conv QLinearConcat"};
  writer.write_network("joined_and_chosen", testing::joined_and_chosen_net, w8a8(), joined);
  writer.write_network("joined_and_chosen_signed", testing::joined_and_chosen_net, w8a8(8, true),
                       joined);
  writer.write_network("layers_w6", testing::every_layer, w8a8(6), layers);
  qat::QuantizeConfig seven = w8a8(7);  // all codes, -64 too: the most that never saturates
  seven.groups[0].config.weights->scheme.narrow_range = false;
  writer.write_network("layers_w7", testing::every_layer, seven, layers);
  writer.write_network("residual", testing::residual_net, w8a8(), in_numpy(residual));
  writer.write_network("residual_signed", testing::residual_net, w8a8(8, true), residual);
  writer.write_network("residual_w4", testing::residual_net, w8a8(4), close);
  writer.write_network("residual_tensorrt", testing::residual_net, testing::tensorrt(8), close,
                       tensorrt);
  writer.write_network("layers_tensorrt", testing::every_layer, testing::tensorrt(8), close,
                       tensorrt);
  writer.write_network("concat", testing::concat_net, w8a8(), concat);
  writer.write_network("concat_signed", testing::concat_net, w8a8(8, true), concat);
  writer.write_network("concat_w4", testing::concat_net, w8a8(4), close);
  writer.write_network("concat_tensorrt", testing::concat_net, testing::tensorrt(8), close,
                       tensorrt);
  const Expected smooth{true, "QLinearConv QGemm QLinearSoftmax", "Conv Gemm Sigmoid"};
  writer.write_network("smooth", testing::smooth_net, w8a8(), smooth);
  writer.write_network("smooth_signed", testing::smooth_net, w8a8(8, true), smooth);
  writer.write_network("smooth_tensorrt", testing::smooth_net, testing::tensorrt(8), close,
                       tensorrt);
  const Expected attention{true, "QLinearConv QLinearMatMul QGemm QLinearSoftmax",
                           "Conv Gemm MatMul"};
  writer.write_network("attention", testing::attention_net, w8a8(), attention);
  writer.write_network("attention_signed", testing::attention_net, w8a8(8, true), attention);
  const auto upsampling = [&](const std::string& name, const qat::QuantizeConfig& config,
                              const Expected& expected, const OnnxOptions& options = {}) {
    writer.write_network("upsampling" + name, testing::upsampling_net,
                         testing::and_transposed(config), expected, options);
  };
  const std::string no_transposed = "Conv ConvTranspose Gemm ReduceMean";
  upsampling("", w8a8(), in_numpy({true, "QLinearConv QGemm", no_transposed}));
  upsampling("_signed", w8a8(8, true), {true, "QLinearConv QGemm", no_transposed});
  upsampling("_affine", testing::affine_weights(8), {true, "QLinearConv QGemm", no_transposed});
  upsampling("_groups", testing::groups_of_codes(4), close);
  upsampling("_a16", testing::wide_activations(16), {true, "ConvInteger", no_transposed});
  upsampling("_tensorrt", testing::tensorrt(8), close, tensorrt);
  writer.write_network("means", testing::means_net, w8a8(),
                       {true, "QLinearConv QGemm", no_transposed});
  writer.write_network("means_a16", testing::means_net, testing::wide_activations(16),
                       {true, "ConvInteger", no_transposed});
  writer.write("rows", joined_rows(), testing::random_tensor({40, 5, 8}, 7, DType::kF32),
               {true, "QLinearConcat", "Concat"});
  qat::QuantizeConfig partly = w8a8();
  partly.ignore = {"fc2", "conv2"};
  writer.write_network("partly_float", testing::every_layer, partly, floats);
  qat::QuantizeConfig floats_between = w8a8();
  floats_between.ignore = {"sigmoid", "leak", "pool", "sum", "product", "shares", "mixed", "plain"};
  writer.write_network(
      "floats_between", testing::operations_net, floats_between,
      {.exact = false,
       .operators = "QLinearConv Sigmoid LeakyRelu AveragePool Add Mul Softmax MatMul Conv",
       .no_operators = "QLinearSigmoid QLinearLeakyRelu QLinearAveragePool QLinearAdd QLinearMul "
                       "QLinearSoftmax QLinearMatMul MatMulIntegerToFloat",
       .distance = 0.02});
  writer.write_network("shares_of_one", testing::one_channel_net, w8a8(),
                       {true, "QLinearConv Softmax", "QLinearSoftmax"});
  // Layers in float that read codes of rows, of images behind a reshape, and of transposed images.
  qat::QuantizeConfig rows_partly = w8a8();
  rows_partly.ignore = {"value"};
  writer.write_network("attention_partly_float", testing::attention_net, rows_partly,
                       {.exact = false, .operators = "QLinearConv", .distance = 0.02});
  qat::QuantizeConfig moved_partly = w8a8();
  moved_partly.ignore = {"second"};
  writer.write_network("moved_partly_float", testing::moved_net, moved_partly,
                       {.exact = false, .operators = "QLinearConv", .distance = 0.02});
  qat::QuantizeConfig narrow = w8a8();
  narrow.groups[0].config.activations->scheme.bits = 4;
  writer.write_network("layers_a4", testing::every_layer, narrow, layers);
  writer.write_network("residual_a4", testing::residual_net, narrow, residual);
  writer.write_network("concat_a4", testing::concat_net, narrow, concat);
  writer.write_network("layers_w4_groups", testing::every_layer, testing::weight_groups(4), close);
  writer.write_network("layers_w8_groups", testing::every_layer, testing::weight_groups(8), close);
  writer.write_network("residual_w4_groups", testing::residual_net, testing::weight_groups(4),
                       close);
  writer.write_network("layers_groups_of_codes", testing::every_layer, testing::groups_of_codes(4),
                       close);
  writer.write_network("residual_groups_of_codes", testing::residual_net,
                       testing::groups_of_codes(8), close);
  const std::string no_float_products = "Conv Gemm FusedConv FusedGemm AveragePool";
  const Expected integers{true, "ConvInteger MatMulInteger", no_float_products};
  for (const int bits : {9, 16}) {
    const std::string name = "_a" + std::to_string(bits);
    writer.write_network("layers" + name, testing::every_layer, testing::wide_activations(bits),
                         integers);
    writer.write_network("residual" + name, testing::residual_net, testing::wide_activations(bits),
                         integers);
  }
  writer.write_network("layers_a16_signed", testing::every_layer,
                       testing::wide_activations(16, true), in_numpy(integers));
  writer.write_network("concat_a16", testing::concat_net, testing::wide_activations(16),
                       in_numpy(integers));
  writer.write_network("layers_mixed", testing::every_layer, testing::mixed_activations(false),
                       {true, "QLinearConv MatMulInteger", no_float_products});
  writer.write_network("residual_mixed", testing::residual_net, testing::mixed_activations(true),
                       in_numpy({true, "ConvInteger", no_float_products}));
  qat::QuantizeConfig affine_heads = testing::affine_weights(8);
  affine_heads.groups.insert(affine_heads.groups.begin(), {{"Conv2d"}, qat::default_w8a8()});
  for (auto& group : affine_heads.groups) group.config.activations->scheme.bits = 16;
  writer.write_network("layers_a16_affine_linear", testing::every_layer, affine_heads,
                       in_numpy(integers));
  qat::QuantizeConfig wide_groups = testing::groups_of_codes(4);
  for (auto& group : wide_groups.groups) group.config.activations->scheme.bits = 16;
  writer.write_network("layers_groups_a16", testing::every_layer, wide_groups, close);
  qat::QuantizeConfig head = w8a8();
  head.groups = {{{"Conv2d"}, qat::default_w8a8()}, testing::weight_groups(4).groups[1]};
  writer.write_network("layers_with_a_head_in_groups", testing::every_layer, head,
                       {false, "QLinearConv", "Conv"});
  using Case = std::pair<std::string, std::shared_ptr<Module> (*)(Rng&)>;
  for (const auto& [name, network] :
       {Case{"images", &testing::image_operations}, Case{"attention", &testing::attention}}) {
    const std::vector<std::string> products{"Conv2d", "Linear"};
    const bool rows = name == "attention";
    writer.write("float_" + name, traced(network, {}), images(40, 7),
                 {.exact = false, .distance = 1e-5});
    writer.write("quantized_" + name,
                 traced(network, {products.begin(), products.begin() + (rows ? 2 : 1)}),
                 images(40, 7),
                 {.exact = false, .operators = rows ? "QGemm" : "QLinearConv", .distance = 0.05});
  }
  writer.write("float_recurrent", traced(&testing::recurrent, {}), images(40, 7),
               {.exact = false, .operators = "LSTM", .distance = 1e-5});
  writer.write("float_padded_pools", traced(&testing::padded_pools, {}), images(40, 7),
               {.exact = false, .operators = "MaxPool", .distance = 1e-5});
  writer.write("float_gated", traced(&testing::gated, {}), images(40, 7),
               {.exact = false, .operators = "GRU", .distance = 1e-5});
  for (unsigned seed = 1; seed <= random_graphs; ++seed) {
    const testing::RandomGraph random(seed, seed % 2 == 0 ? DType::kU8 : DType::kI8);
    writer.write("random" + std::to_string(seed), random.graph(), random.inputs(),
                 {true, "QGemm", no_floats});
  }
}

// Graphs that compute in fixed point, which ONNX does not.
void write_fixed_point(const Writer& writer, unsigned random_graphs) {
  for (unsigned seed = 1; seed <= random_graphs; ++seed) {
    for (const auto rounding : {kernels::Rounding::kFixedOnce, kernels::Rounding::kFixedTwice}) {
      const testing::RandomGraph random(seed, DType::kI8, rounding);
      writer.write_deployed(
          (rounding == kernels::Rounding::kFixedOnce ? "fixed_once" : "fixed_twice") +
              std::to_string(seed),
          random.graph(), Interpreter(random.graph()).run_all(random.inputs()));
    }
  }
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  using namespace steelyard::deploy;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool deployed = arguments.size() == 3 && arguments[2] == "deployed";
  if (arguments.empty() || (arguments.size() > 2 && !deployed)) return 2;
  std::filesystem::create_directories(arguments[0]);
  const auto random_graphs =
      arguments.size() > 1 ? static_cast<unsigned>(std::stoul(arguments[1])) : 30U;
  const Writer writer(arguments[0], deployed);
  write_cases(writer, random_graphs);
  if (deployed) write_fixed_point(writer, random_graphs);
}
