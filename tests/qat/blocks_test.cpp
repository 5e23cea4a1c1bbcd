// Layers whose weights are blocks of ggml's types.
#include "steelyard/qat/blocks/block_layers.h"

#include <gtest/gtest.h>

#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/qat/blocks/block_ops.h"
#include "steelyard/qat/blocks/stored_layers.h"
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
  EXPECT_EQ(block_weights(model),
            (std::map<std::string, BlockScheme>{{"embd.weight", BlockType::kQ8_0},
                                                {"inner.up.weight", BlockType::kQ8_0}}));
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

TEST(BlockLinear, MayHaveSearchedScales) {
  const Variable x(random_tensor({4, 64}, 1, DType::kF32));
  const Variable w(random_tensor({8, 64}, 2, DType::kF32), true);
  for (const BlockType type : {BlockType::kQ4_0, BlockType::kIq4Nl, BlockType::kMxfp4}) {
    const BlockScheme scheme(type, BlockScales::kSearch);
    const Tensor values = block_values(w, scheme).value();
    EXPECT_FALSE(all_close(values, block_values(w, type).value(), 0, 0));
    const Variable inputs(round_trip<kernels::InputBlocks, kernels::Q8_0Blocks>(x.value()));
    const Variable y = block_linear(x, w, {}, scheme);
    EXPECT_TRUE(all_close(y.value(), linear(inputs, Variable(values), {}).value(), 1e-5, 1e-5));
  }
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              block_values(x, {BlockType::kQ8_0, BlockScales::kSearch});
            }),
            "[blocks] no scales are searched for the type q8_0");
}

// What chooses: the first group, `ignore`, containers.
class UseBlocksOf : public ::testing::Test {
 protected:
  static std::shared_ptr<Graph> new_model() {
    Rng rng(1);
    const auto linear = [&] { return std::make_shared<Linear>(LinearOptions{32, 32}, rng); };
    const auto inner = std::make_shared<Sequential>(
        Sequential::NamedChildren{{"up", linear()}, {"down", linear()}});
    const auto table = std::make_shared<Embedding>(EmbeddingOptions{10, 32}, rng);
    return std::make_shared<Graph>(
        std::vector<Graph::NamedNode>{{"embd", table, {}},
                                      {"inner", inner, {}},
                                      {"last", linear(), {}},
                                      {"head", std::make_shared<EmbeddingHead>(table), {}}});
  }
  static std::string error(const BlockConfig& config) {
    return message_of<InputError>([&] { use_blocks(*new_model(), config); });
  }

  std::shared_ptr<Graph> model_ = new_model();
};

TEST_F(UseBlocksOf, EachLayerItsOwn) {
  const BlockConfig config{
      .type = BlockType::kMxfp4,
      .groups = {{.targets = {"embd", "head"}, .type = BlockType::kQ8_0},
                 {.targets = {"re:inner[.]d.*"}, .scales = BlockScales::kSearch},
                 {.targets = {"Linear"}, .type = BlockType::kQ4_0, .scales = BlockScales::kSearch}},
      .ignore = {"last"}};
  const Plan plan = use_blocks(*model_, config);
  EXPECT_EQ(block_weights(*model_),
            (std::map<std::string, BlockScheme>{
                {"embd.weight", BlockType::kQ8_0},
                {"inner.down.weight", {BlockType::kMxfp4, BlockScales::kSearch}},
                {"inner.up.weight", {BlockType::kQ4_0, BlockScales::kSearch}}}));
  EXPECT_EQ(model_->slot("last")->type_name(), "Linear");
  ASSERT_EQ(plan.rows.size(), 5U);
  EXPECT_EQ(plan.rows[1].module, "inner.up");
  EXPECT_EQ(plan.rows[1].quantized, "blocks of q4_0");
  EXPECT_EQ(plan.rows[1].observer, "search");
  EXPECT_EQ(plan.rows[3].quantized, "float");
  EXPECT_EQ(plan.rows[3].note, "ignored by 'last'");
}

TEST_F(UseBlocksOf, ATableInFloatKeepsItsHead) {
  use_blocks(*model_, {.groups = {}, .ignore = {"embd", "head", "inner"}});
  EXPECT_EQ(block_weights(*model_),
            (std::map<std::string, BlockScheme>{{"last.weight", BlockType::kQ4_0}}));
  EXPECT_EQ(model_->slot("head")->type_name(), "EmbeddingHead");
}

// One tensor of the file: where one of its places is ignored, it stays in float.
TEST_F(UseBlocksOf, ATableInFloatIsOneForItsHead) {
  for (const auto& [ignored, other] : {std::pair("head", "embd"), std::pair("embd", "head")}) {
    model_ = new_model();
    const Plan plan = use_blocks(*model_, {.groups = {}, .ignore = {ignored}});
    EXPECT_FALSE(block_weights(*model_).contains("embd.weight"));
    EXPECT_EQ(block_weights(*model_).size(), 3U);
    EXPECT_EQ(model_->slot("embd")->type_name(), "Embedding");
    EXPECT_EQ(model_->slot("head")->type_name(), "EmbeddingHead");
    for (const PlanRow& row : plan.rows) {
      if (row.module == other) {
        EXPECT_EQ(row.quantized, "float");
        EXPECT_EQ(row.note, std::string("its weight is that of ") + ignored);
      }
    }
  }
}

TEST_F(UseBlocksOf, WhatDoesNotFit) {
  EXPECT_EQ(error({.ignore = {"lost"}}),
            "quantize.ignore: 'lost' matches no module (did you mean 'last'?)");
  EXPECT_EQ(error({.groups = {{.targets = {"Embedding"}}}}),
            "head and embd share a weight, which is one tensor of the file: expected both in one "
            "type, or neither, got float and q4_0; name both in one list of targets");
  EXPECT_NE(error({.groups = {{.targets = {"re:.*"}}, {.targets = {"last"}}}})
                .find("names only layers that a group before it"),
            std::string::npos);
}

TEST_F(UseBlocksOf, WeightsAreEncodedOnceForEvaluation) {
  use_blocks(*model_, {.groups = {{.targets = {"embd", "head"}, .type = BlockType::kQ8_0},
                                  {.targets = {"Linear"}, .scales = BlockScales::kSearch}},
                       .ignore = {"last"}});
  const NoGradGuard no_grad;
  const Tensor tokens = Tensor::from<float>({3, 9}, {1, 2});
  const Tensor y = (*model_)(Variable(tokens), {}).value();
  store_blocks(*model_);
  EXPECT_TRUE(all_close((*model_)(Variable(tokens), {}).value(), y, 0, 0));
  EXPECT_EQ(model_->slot("head")->type_name(), "StoredBlockLinear");
  EXPECT_EQ(model_->slot("last")->type_name(), "Linear");
  std::vector<std::string> left;
  for (const NamedParameter& p : model_->named_parameters()) left.push_back(p.name);
  EXPECT_EQ(left, (std::vector<std::string>{"embd.weight", "last.weight", "last.bias"}));
}

TEST(StoredLayers, MultiplyTheBlocksThatTheyAreGiven) {
  Rng rng(1);
  const auto table = std::make_shared<Embedding>(EmbeddingOptions{10, 32}, rng);
  const auto layer = std::make_shared<Linear>(LinearOptions{32, 32}, rng);
  Graph model({{"embd", table, {}},
               {"up", layer, {}},
               {"head", std::make_shared<EmbeddingHead>(table), {}}});
  const Tensor tokens = Tensor::from<float>({3, 9}, {1, 2});
  const Variable inner = (*layer)(embedding(Variable(tokens), table->weight()), {});
  const Variable float_y = model(Variable(tokens), {});
  const auto blocks_of = [](const Tensor& w) {
    const std::int64_t n = w.size() / 32;
    StoredBlocks stored{Tensor::empty({w.dim(0), w.dim(1) / 32 * 18}, DType::kU8),
                        BlockType::kQ4_0};
    run(Device{},
        kernels::EncodeBlocks<kernels::Q4_0Blocks>{.n = n,
                                                   .x = w.data<float>(),
                                                   .scales = nullptr,
                                                   .blocks = stored.blocks.data<std::uint8_t>()});
    return stored;
  };
  const Tensor of_table = table->weight().value();
  use_stored_blocks(model, [&](const std::string& parameter) {
    return parameter == "embd.weight" ? std::optional(blocks_of(of_table)) : std::nullopt;
  });
  const Variable y = model(Variable(tokens), {});
  EXPECT_FALSE(all_close(y.value(), float_y.value(), 1e-6, 1e-6));
  EXPECT_TRUE(all_close(
      y.value(), block_linear(inner, Variable(of_table), {}, BlockType::kQ4_0).value(), 0, 0))
      << "the embedding and the other layer are in float";
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              stored_block_linear(inner, Tensor::zeros({10, 17}, DType::kU8), {}, BlockType::kQ4_0);
            }),
            "[stored_block_linear] expected blocks u8 [out, 18], got [10, 17]");
}

}  // namespace
}  // namespace steelyard::qat
