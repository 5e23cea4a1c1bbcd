// The ONNX writer without ONNX Runtime: bytes, options and what is refused. check_onnx.py judges
// what the files compute.
#include "steelyard/export/onnx/onnx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::w8a8;

Graph network(int weight_bits) {
  Rng rng(2);
  const auto model = quantized_model(testing::every_layer(rng), w8a8(weight_bits));
  return trace(*model, images(1, 1), "net").graph;
}

class Onnx : public ::testing::Test {
 protected:
  std::string written(const Graph& graph, const OnnxOptions& options = {}) const {
    write_onnx(path_, graph, options);
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string refusal(const Graph& graph, const OnnxOptions& options = {}) const {
    const std::string message = message_of<InputError>([&] { write_onnx(path_, graph, options); });
    EXPECT_FALSE(std::filesystem::exists(path_));
    return message;
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "model.onnx";
};

bool holds(const std::string& bytes, const std::string& text) {
  return bytes.find(text) != std::string::npos;
}

TEST_F(Onnx, EqualGraphsGiveEqualBytes) {
  const std::string bytes = written(network(8));
  EXPECT_EQ(bytes, written(network(8)));
  EXPECT_NE(bytes, written(network(6)));
}

TEST_F(Onnx, SaysHowTheInputIsMade) {
  Graph graph = network(8);
  graph.preprocessing = {DType::kU8, {{0.5F, 0.5F, 1.5F}, {0.25F, 0.5F, 2.0F}}};
  EXPECT_TRUE(
      holds(written(graph),
            R"({"dtype":"u8","scale":"1/255","mean":[0.5,0.5,1.5],"stddev":[0.25,0.5,2.0]})"));
  graph.preprocessing.transforms = ImageTransforms{.resize = {{9, 8}}};
  graph.class_names = {"a \"cat\"", "dog"};
  const std::string bytes = written(graph);
  EXPECT_TRUE(
      holds(bytes, R"("transforms":{"resize":[9,8],"interpolation":"bilinear","grey":false}})"));
  EXPECT_TRUE(holds(bytes, R"(["a \"cat\"","dog"])"));
}

// Terms that are much larger than their sum are rounded by more than it shows: a table has the
// codes.
TEST_F(Onnx, AMapWhoseTermsCancelIsATable) {
  const auto bytes_of = [&](float in_scale, const kernels::Ramp& ramp, float out_scale) {
    Graph graph;
    graph.name = "map";
    graph.values = {{"x", {4}, std::nullopt},
                    {"quantize", {4}, Quantization{{in_scale, 0}, {0, 255}, DType::kU8}},
                    {"affine", {4}, Quantization{{out_scale, 0}, {0, 255}, DType::kU8}}};
    for (const Op op : {Op::kQuantize, Op::kAffine}) {
      Node& node = graph.nodes.emplace_back();
      node.op = op;
      node.name = op_name(op);
      node.inputs = {graph.nodes.size() - 1};
      node.output = graph.nodes.size();
      if (op == Op::kAffine) node.options = ramp;
    }
    graph.input = 0;
    graph.output = 2;
    return written(graph);
  };
  EXPECT_FALSE(holds(bytes_of(0.25F, {.slope = 1.2463726, .offset = 0.32}, 0.313F), "Gather"));
  // In float, code 246 gives 170, not 171.
  const kernels::Ramp cancels{.slope = 1.246372597455919, .offset = -1096.7400612252598};
  EXPECT_TRUE(holds(bytes_of(0x1.ee59dap+1F, cancels, 0x1.068004p-1F), "Gather"));
}

TEST_F(Onnx, SaysWhichModelItWasMadeFrom) {
  Graph graph = network(8);
  written(graph);
  EXPECT_EQ(onnx_model_sha256(path_), "");
  graph.model_sha256 = "12ab";
  std::string bytes = written(graph);
  EXPECT_EQ(onnx_model_sha256(path_), "12ab");
  write_file_atomic(path_, bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(onnx_model_sha256(path_), "");
}

// ir_version (field 1) is the file's first.
TEST_F(Onnx, FourBitsAreHalfAsLargeAndNeedANewerFormat) {
  const Graph graph = network(4);
  OnnxOptions wide;
  wide.pack_int4 = false;
  const std::string packed = written(graph), unpacked = written(graph, wide);
  EXPECT_EQ(packed.substr(0, 2), "\x08\x0A");
  EXPECT_EQ(unpacked.substr(0, 2), "\x08\x07");
  EXPECT_EQ(written(network(5)).substr(0, 2), "\x08\x07");
  std::int64_t weights = 0;
  for (const Node& node : graph.nodes) weights += node.weights ? node.weights->weight.size() : 0;
  EXPECT_GT(unpacked.size() - packed.size(), weights * 0.45);
}

TEST_F(Onnx, RefusesWhatIsNotFinite) {
  Graph graph = network(8);
  graph.values[2].quantization->scale = NAN;
  EXPECT_TRUE(holds(refusal(graph), "expected a finite scale above 0, got nan"));
  graph = network(8);
  graph.preprocessing.normalization = {{0, INFINITY, 0}, {1, 1, 1}};
  EXPECT_TRUE(holds(refusal(graph), "expected a finite normalization"));

  qat::QuantizeConfig partly = w8a8();
  partly.ignore = {"fc2"};
  Rng rng(2);
  graph = trace(*quantized_model(testing::every_layer(rng), partly), images(1, 1), "net").graph;
  graph.nodes.back().weights->weight.data<float>()[0] = INFINITY;
  EXPECT_TRUE(holds(refusal(graph), "fc2 (linear): a parameter is inf"));
}

TEST_F(Onnx, RefusesWhatHasNoForm) {
  Graph graph = network(8);
  graph.nodes[1].weights->scales[0] = 1e-38F;  // times the input's scale: a denormal bias scale
  EXPECT_TRUE(
      holds(refusal(graph), "export: conv1 (conv2d) has no ONNX form: the scale of its bias, "));
  EXPECT_TRUE(holds(refusal(graph), " times 1e-38 of weights, is not a normal float"));
  graph = network(8);
  graph.output = graph.input;
  EXPECT_EQ(refusal(graph), "export: the graph has no operation");
  graph = network(8);
  graph.nodes[1].name = graph.nodes[2].name;
  EXPECT_TRUE(holds(refusal(graph), "is not that of one node and its output"));
  OnnxOptions small;
  small.max_bytes = 5000;
  EXPECT_TRUE(holds(refusal(network(8), small), "an ONNX file holds at most 5000 bytes"));
}

// ONNX Runtime loads such a file and fails in its first run.
TEST_F(Onnx, RefusesAveragesThatOnnxRuntimeCannotCompute) {
  Rng rng(2);
  Graph graph =
      trace(*quantized_model(testing::residual_net(rng), w8a8()), images(1, 1), "n").graph;
  const auto pool = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& node) { return node.name == "pool"; });
  const Value& in = graph.values[pool->inputs[0]];
  const auto set_multiplier = [&](float multiplier) {
    graph.values[pool->output].quantization->scale =
        in.quantization->scale / static_cast<float>(in.shape[0] * in.shape[1]) / multiplier;
  };
  for (const float fits : {254.0F, 1e-9F}) {
    set_multiplier(fits);
    EXPECT_FALSE(written(graph).empty());
    std::filesystem::remove(path_);
  }
  for (const float fails : {260.0F, 1e-10F}) {
    set_multiplier(fails);
    EXPECT_TRUE(holds(refusal(graph), "expected a multiplier from 2^-32 to 256"));
  }
}

}  // namespace
}  // namespace steelyard::deploy
