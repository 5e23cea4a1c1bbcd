#include "steelyard/export/saturation.h"

#include <gtest/gtest.h>

namespace steelyard::deploy {
namespace {

// Two output channels of four weights each, of inputs with codes from 0 or -128 to `qmax`.
Graph linear(std::vector<std::int8_t> codes, int qmax, DType dtype) {
  Graph graph;
  const kernels::CodeRange range{dtype == DType::kI8 ? -128 : 0, qmax};
  graph.values = {{"input", {4}, Quantization{{1.0F, 0}, range, dtype}}, {"fc", {2}, {}}};
  Node node;
  node.op = Op::kLinear;
  node.name = "fc";
  node.inputs = {0};
  node.output = 1;
  Weights& weights = node.weights.emplace();
  weights.product = ProductKind::kInteger;
  weights.weight = Tensor::from(std::span<const std::int8_t>(codes), {2, 4});
  weights.scales = {1.0F, 1.0F};
  graph.nodes = {node};
  graph.output = 1;
  return graph;
}

TEST(Saturation, IsOfTwoProductsThatLeave16Bits) {
  struct Case {
    std::vector<std::int8_t> codes;
    int qmax;
    DType dtype;
    bool saturates;
  };
  const Case cases[] = {
      {{64, 0, 0, 64, 0, 0, 0, 0}, 255, DType::kU8, false},       // 32,640
      {{64, 0, 0, 65, 0, 0, 0, 0}, 255, DType::kU8, true},        // 32,895
      {{0, 0, 0, 0, -64, 0, -64, 0}, 255, DType::kU8, false},     // -32,640
      {{0, 0, 0, 0, -64, 0, -65, 0}, 255, DType::kU8, true},      // -32,895
      {{127, -127, 0, 0, 0, 0, 0, 0}, 255, DType::kU8, false},    // one of a kind
      {{127, 0, 0, 0, 127, 0, 0, 0}, 255, DType::kU8, false},     // in two channels
      {{127, 127, 127, 127, 0, 0, 0, 0}, 15, DType::kU8, false},  // 4-bit activations
      {{64, 64, 64, 64, 0, 0, 0, 0}, 127, DType::kI8, false},     // as u8
      {{64, 64, 64, 65, 0, 0, 0, 0}, 127, DType::kI8, true},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(may_saturate(linear(c.codes, c.qmax, c.dtype)), c.saturates)
        << &c - cases << ": " << static_cast<int>(c.codes[0]);
  }
  Graph in_float = linear({127, 127, 127, 127, 0, 0, 0, 0}, 255, DType::kU8);
  EXPECT_TRUE(may_saturate(in_float));
  in_float.nodes[0].weights->product = ProductKind::kFloat;
  EXPECT_FALSE(may_saturate(in_float));
}

}  // namespace
}  // namespace steelyard::deploy
