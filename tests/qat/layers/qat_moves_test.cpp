// Codes that are moved as floats would be: values, gradients, and where prepare() puts the forms.
#include "steelyard/qat/layers/qat_moves.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "tests/qat/activation_config.h"
#include "tests/support/attention_net.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::message_of;
using testing::random_tensor;

struct Move {
  const char* name;
  std::function<Variable(const Variable&)> of_codes, of_floats;
};

void PrintTo(const Move& move, std::ostream* out) { *out << move.name; }

class MovesOfCodes : public ::testing::TestWithParam<Move> {};

TEST_P(MovesOfCodes, AreThoseOfTheirValues) {
  for (const int bits : {8, 12}) {
    for (const bool is_signed : {false, true}) {
      QuantizerConfig config = activations(is_signed);
      config.scheme.bits = bits;
      ActivationQuantizer quantizer(config);
      ForwardContext training{.training = true};
      const Variable leaf(random_tensor({2, 3, 4, 5}, 1, DType::kF32), true);
      const Variable x = quantizer.forward(leaf, training);
      const Variable y = GetParam().of_codes(x);
      const Variable expected = GetParam().of_floats(Variable(x.value(), true));
      ASSERT_TRUE(quantized(y));
      EXPECT_EQ(quantized(y)->codes.dtype(), quantized(x)->codes.dtype());
      EXPECT_TRUE(all_close(y.value(), expected.value(), 0, 0));
      const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
      y.backward(grad);
      const Variable again(x.value(), true);
      GetParam().of_floats(again).backward(grad);
      EXPECT_TRUE(all_close(leaf.grad(), again.grad(), 0, 1e-6));
    }
  }
}

const Move kMoves[] = {{"permute",
                        [](const Variable& x) {
                          return permute_codes(x, {0, 3, 1, 2});
                        },
                        [](const Variable& x) {
                          return permute(x, {0, 3, 1, 2});
                        }},
                       {"reshape",
                        [](const Variable& x) {
                          return reshape_codes(x, {2, 12, 5});
                        },
                        [](const Variable& x) {
                          return reshape(x, {2, 12, 5});
                        }},
                       {"slice",
                        [](const Variable& x) {
                          return slice_codes(x, {{0, 2, 1}, {2, 2, -2}, {1, 2, 2}, {0, 5, 1}});
                        },
                        [](const Variable& x) {
                          return slice(x, {{0, 2, 1}, {2, 2, -2}, {1, 2, 2}, {0, 5, 1}});
                        }},
                       {"pad",
                        [](const Variable& x) {
                          return pad_codes(x, {0, 1, 0, 2}, {0, 0, 3, 0});
                        },
                        [](const Variable& x) {
                          return pad(x, {0, 1, 0, 2}, {0, 0, 3, 0});
                        }},
                       {"repeat", [](const Variable& x) { return repeat_codes(x, 2, 3); },
                        [](const Variable& x) {
                          return resize(x, {.repeats = 2, .inputs = 3, .outputs = 6},
                                        {.repeats = 3, .inputs = 4, .outputs = 12});
                        }}};

INSTANTIATE_TEST_SUITE_P(Moves, MovesOfCodes, ::testing::ValuesIn(kMoves),
                         [](const auto& test) { return std::string(test.param.name); });

// An input of another rank or size than the layer was built for.
TEST(QuantizedMoves, OfOtherShapesAreRefused) {
  ActivationQuantizer quantizer(activations(false));
  ForwardContext training{.training = true};
  const auto codes = [&](Shape shape) {
    return quantizer.forward(Variable(random_tensor(std::move(shape), 1, DType::kF32)), training);
  };
  const Variable x = codes({2, 3, 4});
  const auto error = [](const auto& move) { return message_of<std::invalid_argument>(move); };
  EXPECT_EQ(error([&] {
              permute_codes(x, {0, 3, 1, 2});
            }),
            "[quantized_permute] expected a permutation of the dimensions of [2, 3, 4], of at most "
            "6, got 0, 3, 1, 2");
  EXPECT_THROW(permute_codes(x, {0, 1}), std::invalid_argument);
  EXPECT_THROW(permute_codes(x, {0, 1, 1}), std::invalid_argument);
  EXPECT_EQ(
      error([&] {
        slice_codes(x, {{0, 2, 1}, {0, 3, 1}, {2, 3, 1}});
      }),
      "[quantized_slice] expected positions inside of [2, 3, 4], got 3 from 2 on in steps of 1 "
      "along dimension 2");
  EXPECT_THROW(slice_codes(x, {{0, 2, 1}, {0, 3, 1}}), std::invalid_argument);
  EXPECT_EQ(error([&] {
              pad_codes(x, {0, 1, 0, 2}, {0, 0, 3, 0});
            }),
            "[quantized_pad] expected two numbers for each dimension of [2, 3, 4], got 4 and 4");
  EXPECT_THROW(pad_codes(x, {0, 1, 0}, {0, 0}), std::invalid_argument);
  EXPECT_THROW(pad_codes(x, {0, -1, 0}, {0, 0, 0}), std::invalid_argument) << "cuts off";
  EXPECT_THROW(repeat_codes(x, 2, 2), std::invalid_argument);
  EXPECT_THROW(repeat_codes(codes({1, 2, 2, 1}), 0, 2), std::invalid_argument);
  EXPECT_THROW(repeat_codes(codes({1, 2, 2, 1}), 2, -1), std::invalid_argument);
}

// The whole way from a float model.
TEST(PrepareMoves, OfOtherShapesAreRefused) {
  Rng rng(1);
  const auto model = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"conv", std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3, .out_channels = 2}, rng)},
      {"slice", std::make_shared<Slice>(1, TakenAxis{.first = 2, .count = 4})}});
  const auto prepared =
      prepare(model, {.groups = {{.targets = {"Conv2d"}, .config = default_w8a8()}}, .ignore = {}});
  ForwardContext training{.training = true};
  EXPECT_EQ(prepared.model->forward(Variable(Tensor::zeros({1, 6, 4, 3})), training).shape(),
            (Shape{1, 4, 4, 2}));
  EXPECT_THROW(prepared.model->forward(Variable(Tensor::zeros({1, 4, 4, 3})), training),
               std::invalid_argument);
}

TEST(PrepareMoves, NothingStaysInFloat) {
  Rng rng(1);
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  const PreparedModel prepared = prepare(testing::attention_net(rng), config);
  for (const PlanRow& row : prepared.plan.rows) EXPECT_NE(row.quantized, "float") << row.module;
  ForwardContext training{.training = true};
  const Variable y = prepared.model->forward(
      Variable(random_tensor({2, 9, 8, 3}, 2, DType::kF32), true), training);
  EXPECT_TRUE(quantized(y));
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const NamedParameter& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
  }
}

// Borders of other numbers and weighted sums of pixels are no codes.
TEST(PrepareMoves, WhatMakesNewValuesStaysInFloat) {
  Rng rng(1);
  const ResizedAxis same{.repeats = 1, .inputs = 4, .outputs = 4};
  const ResizedAxis half{.inputs = 6,
                         .outputs = 3,
                         .weights = {.5, .5, 0, 0, 0, 0, 0, 0, .5, .5, 0, 0, 0, 0, 0, 0, .5, .5}};
  const auto model = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"conv", std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3, .out_channels = 2}, rng)},
      {"pad", std::make_shared<Pad>(std::vector<std::int64_t>{0, 1, 0, 0},
                                    std::vector<std::int64_t>{0, 1, 0, 0}, 1.5)},
      {"resize", std::make_shared<Resize>(half, same)}});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  std::string text;
  const PreparedModel prepared = prepare(model, config);
  for (const PlanRow& row : prepared.plan.rows) {
    if (row.quantized == "float") text += row.module + ": " + row.note + "\n";
  }
  EXPECT_EQ(text, "pad: Pad has no quantized form\nresize: Resize has no quantized form\n");
  ForwardContext training{.training = true};
  EXPECT_EQ(prepared.model->forward(Variable(Tensor::zeros({1, 4, 4, 3})), training).shape(),
            (Shape{1, 3, 4, 2}));
}

// A variance in 8 bits would be 0 in quiet parts of a sample, and its reciprocal infinite.
TEST(PrepareMoves, WhatIsDividedByStaysInFloat) {
  const auto noted = [](kernels::UnaryFunction function) {
    Rng rng(1);
    const auto model = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
        {"conv", std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3, .out_channels = 2}, rng)},
        {"eps", std::make_shared<Affine>(1, 1e-5)},
        {"function", std::make_shared<Elementwise>(function)}});
    QuantizeConfig config;
    config.groups.push_back({{"Conv2d"}, default_w8a8()});
    const PreparedModel prepared = prepare(model, config);
    for (const PlanRow& row : prepared.plan.rows) {
      if (row.module == "eps") return row.quantized + ": " + row.note;
    }
    return std::string("no row");
  };
  EXPECT_EQ(noted(kernels::UnaryFunction::kSqrt),
            "float: read by Sqrt, which needs its small values");
  EXPECT_EQ(noted(kernels::UnaryFunction::kTanh).substr(0, 5), "uint8");
}

}  // namespace
}  // namespace steelyard::qat
