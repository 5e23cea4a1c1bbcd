// Layers whose weights are blocks of ggml's types.
#include "steelyard/qat/blocks/block_layers.h"

#include <gtest/gtest.h>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/qat/blocks/block_ops.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using kernels::BlockType;
using testing::all_close;
using testing::message_of;
using testing::random_tensor;

constexpr BlockType kTargets[] = {BlockType::kQ4_0, BlockType::kQ8_0, BlockType::kIq4Nl,
                                  BlockType::kMxfp4};

// The values of blocks that `Encoder` makes and `Format` reads.
template <class Encoder, class Format>
Tensor round_trip(const Tensor& x) {
  const std::int64_t n = x.size() / Format::kElements;
  std::vector<std::uint8_t> blocks(n * Format::kBytes);
  Tensor y = Tensor::empty(x.shape());
  run(Device{}, kernels::EncodeBlocks<Encoder>{
                    .n = n, .x = x.data<float>(), .scales = nullptr, .blocks = blocks.data()});
  run(Device{},
      kernels::DecodeBlocks<Format>{.n = n, .blocks = blocks.data(), .x = y.data<float>()});
  return y;
}

Tensor values_of(const Tensor& x, BlockType type) {
  return visit_blocks(
      type, [&](auto format) { return round_trip<decltype(format), decltype(format)>(x); });
}

class Blocks : public ::testing::TestWithParam<BlockType> {};

TEST_P(Blocks, ProductsAndGradientsAreThoseOfTheValues) {
  const Variable x(random_tensor({2, 3, 64}, 1, DType::kF32), true);
  const Variable w(random_tensor({5, 64}, 2, DType::kF32), true);
  const Variable b(random_tensor({5}, 3, DType::kF32), true);
  const Tensor grad = random_tensor({2, 3, 5}, 4, DType::kF32);
  block_linear(x, w, b, GetParam()).backward(grad);
  const Tensor y = block_linear(x, w, b, GetParam()).value();

  const Variable inputs(round_trip<kernels::InputBlocks, kernels::Q8_0Blocks>(x.value()), true);
  const Variable weights(values_of(w.value(), GetParam()), true);
  const Variable bias(b.value(), true);
  const Variable expected = linear(inputs, weights, bias);
  expected.backward(grad);
  EXPECT_TRUE(all_close(y, expected.value(), 1e-5, 1e-5));
  EXPECT_TRUE(all_close(x.grad(), inputs.grad(), 1e-6, 1e-6));
  EXPECT_TRUE(all_close(w.grad(), weights.grad(), 1e-6, 1e-6));
  EXPECT_TRUE(all_close(b.grad(), bias.grad(), 0, 0));
  EXPECT_FALSE(all_close(y, linear(x, w, b).value(), 1e-5, 1e-5)) << "it is not float's";
}

TEST_P(Blocks, ValuesPassAllGradients) {
  const Variable x(random_tensor({3, 64}, 1, DType::kF32), true);
  const Variable y = block_values(x, GetParam());
  EXPECT_TRUE(all_close(y.value(), values_of(x.value(), GetParam()), 0, 0));
  const Tensor grad = random_tensor({3, 64}, 2, DType::kF32);
  y.backward(grad);
  EXPECT_TRUE(all_close(x.grad(), grad, 0, 0));
}

INSTANTIATE_TEST_SUITE_P(Targets, Blocks, ::testing::ValuesIn(kTargets), [](const auto& param) {
  return std::string(kernels::ggml_type(param.param).name);
});

TEST(BlockLinear, NeedsWholeBlocksAndAProduct) {
  const Variable x(Tensor::zeros({2, 40})), w(Tensor::zeros({3, 40}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { block_linear(x, w, {}, BlockType::kQ4_0); }),
            "[block_linear]: expected rows of whole blocks of 32 for q4_0, got rows of 40");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { block_linear(x, w, {}, BlockType::kF16); }),
            "[block_linear] expected q4_0, q8_0, iq4_nl or mxfp4, got f16");
}

TEST(UseBlocks, KeepsNamesAndStoragesAndTheSharedTable) {
  Rng rng(1);
  const auto table = std::make_shared<Embedding>(EmbeddingOptions{10, 32}, rng);
  const auto layer = std::make_shared<Linear>(LinearOptions{32, 32}, rng);
  const auto inner = std::make_shared<Sequential>(Sequential::NamedChildren{{"up", layer}});
  Graph model({{"embd", table, {}},
               {"inner", inner, {}},
               {"head", std::make_shared<EmbeddingHead>(table), {}}});
  const std::vector<std::string> names = testing::names_of(model.named_parameters());
  use_blocks(model, BlockType::kQ8_0);
  EXPECT_EQ(testing::names_of(model.named_parameters()), names);
  EXPECT_EQ(block_weights(model), (std::vector<std::string>{"embd.weight", "inner.up.weight"}));
  EXPECT_EQ(model.slot("head")->type_name(), "BlockEmbeddingHead");
  EXPECT_EQ(model.named_parameters()[0].variable.value().raw(), table->weight().value().raw());

  const Tensor tokens = Tensor::from<float>({3, 9}, {1, 2});
  const Variable y = model(Variable(tokens), {});
  EXPECT_EQ(y.shape(), (Shape{1, 2, 10}));
  y.backward(Tensor::full({1, 2, 10}, 1.0));
  // Of the head every row has the same gradient, of the embedding two rows have more.
  const Tensor grad = model.named_parameters()[0].variable.grad();
  const auto row_is = [&](std::int64_t a, std::int64_t b) {
    return std::equal(grad.data<float>() + a * 32, grad.data<float>() + (a + 1) * 32,
                      grad.data<float>() + b * 32);
  };
  EXPECT_TRUE(row_is(0, 1));
  EXPECT_FALSE(row_is(0, 3));
  EXPECT_FALSE(row_is(0, 9));
}

TEST(UseBlocks, NamesTheLayerThatHasNoWholeBlocks) {
  Rng rng(1);
  Sequential model(
      Sequential::NamedChildren{{"down", std::make_shared<Linear>(LinearOptions{48, 32}, rng)}});
  EXPECT_EQ(message_of<std::invalid_argument>([&] { use_blocks(model, BlockType::kMxfp4); }),
            "down: expected rows of whole blocks of 32 for mxfp4, got rows of 48");
}

}  // namespace
}  // namespace steelyard::qat
