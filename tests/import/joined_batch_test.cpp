// The batch joined with another dimension, as attention of PyTorch's has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/import/translate.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::HasSubstr;
using testing::message_of;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kPositions = 5, kWidth = 6, kHeads = 2, kOf = kWidth / kHeads;

// Queries, keys and values of [N, steps, width], by whatever weights that seeds give.
struct Attention : ModelMaker {
  Attention() : ModelMaker({{std::nullopt, "batch"}, {kPositions}, {kWidth}}) {}

  std::string linear(const std::string& x, const std::string& name) {
    return node("MatMul", {x, weight(name, {kWidth, kWidth})});
  }
  std::string transposed(const std::string& x, const Ints& order) {
    return node("Transpose", {x}, {{"perm", order}});
  }
  std::string reshaped(const std::string& x, const Ints& shape) {
    return node("Reshape", {x, integers(shape)});
  }
  std::string chosen(const std::string& scores, const std::string& mask) {
    const std::string scaled = node("Mul", {scores, number(1 / std::sqrt(float{kOf}))});
    return node("Softmax", {node("Add", {scaled, mask})}, {{"axis", std::int64_t{-1}}});
  }
  std::string mask() {
    std::vector<float> values;
    for (std::int64_t i = 0; i < kPositions * kPositions; ++i) {
      values.push_back(i % kPositions > i / kPositions ? -100.0F : 0.0F);
    }
    return reals("mask", {kPositions, kPositions}, values);
  }
};

// With the batch as a dimension of its own throughout.
OnnxModel batch_first() {
  Attention m;
  const auto heads = [&](const std::string& name, const Ints& order) {
    return m.transposed(m.reshaped(m.linear("x", name), {-1, kPositions, kHeads, kOf}), order);
  };
  const std::string q = heads("q", {0, 2, 1, 3}), k = heads("k", {0, 2, 3, 1});
  const std::string v = heads("v", {0, 2, 1, 3});
  const std::string scores = m.chosen(m.node("MatMul", {q, k}), m.mask());
  const std::string each = m.transposed(m.node("MatMul", {scores, v}), {0, 2, 1, 3});
  return m.ending_in(m.linear(m.reshaped(each, {-1, kPositions, kWidth}), "out"));
}

// As nn.MultiheadAttention computes it: steps first, [steps, N * heads, of a head], and rows
// [steps * N, width] in front of the last layer.
OnnxModel joined() {
  Attention m;
  const std::string x = m.transposed("x", {1, 0, 2});
  const auto heads = [&](const std::string& name, const Ints& order) {
    return m.transposed(m.reshaped(m.linear(x, name), {kPositions, -1, kOf}), order);
  };
  const std::string q = heads("q", {1, 0, 2}), k = heads("k", {1, 2, 0}), v = heads("v", {1, 0, 2});
  const std::string scores = m.chosen(m.node("MatMul", {q, k}), m.mask());
  const std::string each = m.transposed(m.node("MatMul", {scores, v}), {1, 0, 2});
  const std::string rows = m.linear(m.reshaped(each, {-1, kWidth}), "out");
  return m.ending_in(m.transposed(m.reshaped(rows, {kPositions, -1, kWidth}), {1, 0, 2}));
}

TEST(JoinedBatch, AttentionWithHeadsInTheBatchIsThatWithThemApart) {
  const Imported apart = translate(batch_first(), {kPositions, kWidth});
  const Imported imported = translate(joined(), {kPositions, kWidth});
  const Tensor x = random_tensor({3, kPositions, kWidth}, 9, DType::kF32);
  EXPECT_TRUE(all_close(output_of(imported, x), output_of(apart, x), 1e-6, 1e-6));
  // What could not be exported: the batch as a part of a dimension, or behind another one.
  for (const NodeSpec& node : imported.graph.nodes) {
    const auto order = node.options.find("order");
    if (order != node.options.end()) {
      EXPECT_EQ(std::get<Ints>(order->second)[0], 0) << node.name;
    }
    const auto shape = node.options.find("shape");
    if (node.type == "Reshape") {
      EXPECT_EQ(std::get<Ints>(shape->second)[0], -1) << node.name;
    }
  }
  EXPECT_EQ(imported.graph.nodes.size(), apart.graph.nodes.size());
}

// What needs the rows as ONNX has them gets them so, and what follows, too.
TEST(JoinedBatch, OtherOperationsHaveItJoined) {
  ModelMaker m({{std::nullopt, "batch"}, {4}, {3}});
  const std::string rows =
      m.node("Relu", {m.node("Reshape", {"x", m.integers({-1, 3})})});  // [4 * N, 3]
  const std::string mean = m.node("ReduceMean", {rows}, {{"axes", Ints{1}}});
  const std::string both = m.node("Concat", {rows, mean}, {{"axis", std::int64_t{1}}});
  const std::string sum = m.node("Sub", {both, m.node("Mul", {mean, m.number(2)})});
  const Imported imported =
      translate(m.ending_in(m.node("Reshape", {sum, m.integers({-1, 16})})), {4, 3});
  const Tensor x = random_tensor({2, 4, 3}, 5, DType::kF32);
  const Tensor y = output_of(imported, x);
  ASSERT_EQ(y.shape(), (Shape{2, 16}));
  for (std::int64_t row = 0; row < 8; ++row) {
    const float* from = x.data<float>() + 3 * row;
    const float* found = y.data<float>() + 4 * row;
    const auto bent = [&](std::int64_t i) { return std::max(from[i], 0.0F); };
    const float of_row = (bent(0) + bent(1) + bent(2)) / 3;
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], bent(i) - 2 * of_row, 1e-6);
    EXPECT_NEAR(found[3], -of_row, 1e-6);
  }
}

// Its dimensions are ONNX's, not those that are apart here.
TEST(JoinedBatch, AConstantOfMoreDimensionsIsRefused) {
  ModelMaker m({{std::nullopt, "batch"}, {2}, {3}});
  const std::string rows = m.node("Reshape", {"x", m.integers({-1, 3})});  // [2 * N, 3]
  const OnnxModel model =
      m.ending_in(m.node("Mul", {rows, m.reals("factors", {2, 1, 1}, {2, -1})}));
  EXPECT_THAT(message_of<InputError>([&] {
                translate(model, {2, 3});
              }),
              HasSubstr("its constant [2, 1, 1] has more dimensions than [2*N, 3]"));
}

}  // namespace
}  // namespace steelyard::imports
