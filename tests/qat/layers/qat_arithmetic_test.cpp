// Arithmetic with constants and of values whose shapes broadcast: the rule, gradients, and where
// prepare() puts quantizers.
#include "steelyard/qat/layers/qat_arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/activation_config.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::random_tensor;
using testing::values;

// Codes of a sum do not depend on whether an operand repeats or was repeated before.
TEST(AddCodes, AnOperandMayRepeat) {
  for (const Shape& shape : {Shape{2, 1, 1, 5}, Shape{2, 3, 1, 1}, Shape{2, 1, 4, 5}}) {
    for (const int bits : {8, 12}) {
      QuantizerConfig config = activations(false);
      config.scheme.bits = bits;
      ActivationQuantizer of_a(config), of_b(config), output(config);
      ForwardContext training{.training = true}, evaluation;
      const Shape whole{2, 3, 4, 5};
      const Variable leaf_a(random_tensor(whole, 1, DType::kF32), true);
      const Variable leaf_b(random_tensor(shape, 2, DType::kF32), true);
      const Variable a = of_a.forward(leaf_a, training), b = of_b.forward(leaf_b, training);
      const Variable spread = b + Variable(Tensor::zeros(whole, DType::kF32));
      output.set_qparams(0, bits == 8 ? 0.006F : 0.0004F, bits == 8 ? 120 : 2000);  // clips some
      const Variable y = add_codes(a, b, kernels::Activation::kRelu, output, evaluation);
      const Variable long_way = add_codes(a, of_b.forward(spread, evaluation),
                                          kernels::Activation::kRelu, output, evaluation);
      EXPECT_EQ(values(quantized(y)->codes), values(quantized(long_way)->codes));
      const Tensor grad = random_tensor(whole, 3, DType::kF32);
      y.backward(grad);
      const Tensor grad_a = leaf_a.grad().clone(), grad_b = leaf_b.grad().clone();
      long_way.backward(grad);
      const auto twice = [](const Tensor& once) { return (Variable(once) * 2.0).value(); };
      EXPECT_TRUE(all_close(leaf_a.grad(), twice(grad_a), 1e-6, 1e-6));
      EXPECT_TRUE(all_close(leaf_b.grad(), twice(grad_b), 1e-5, 1e-5));
    }
  }
}

std::shared_ptr<Module> pair(Arithmetic operation) {
  return std::make_shared<PairArithmetic>(operation);
}

std::shared_ptr<Module> with(Arithmetic operation, std::uint64_t seed) {
  return std::make_shared<ConstantArithmetic>(ConstantArithmeticOptions{operation, false, true},
                                              random_tensor({6}, seed, DType::kF32));
}

std::string notes(const PreparedModel& prepared) {
  std::string text;
  for (const PlanRow& row : prepared.plan.rows) {
    if (row.tensor == "output") text += row.module + ": " + row.note + "\n";
  }
  return text;
}

TEST(PrepareArithmetic, TheLastOfAChainOfConstantsHasAQuantizer) {
  Rng rng(1);
  const auto conv = [&](std::int64_t in) {
    return std::make_shared<Conv2d>(Conv2dOptions{.in_channels = in, .out_channels = 6}, rng);
  };
  const auto model = std::make_shared<Graph>(
      std::vector<Graph::NamedNode>{{"conv", conv(3)},
                                    {"scale", with(Arithmetic::kMultiply, 1)},
                                    {"shift", with(Arithmetic::kAdd, 2)},
                                    {"quotient", with(Arithmetic::kDivide, 3), {"conv"}},
                                    {"sum", pair(Arithmetic::kAdd), {"shift", "quotient"}},
                                    {"relu", std::make_shared<ReLU>()},
                                    {"sub", pair(Arithmetic::kSubtract), {"relu", "conv"}},
                                    {"last", conv(6)}});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  const PreparedModel prepared = prepare(model, config);
  EXPECT_EQ(notes(prepared),
            "(input): the model's input\nconv: \nscale: quantized after shift\n"
            "shift: in float between quantizers\nquotient: in float between quantizers\n"
            "sum: of the sum after relu\nsub: in float between quantizers\nlast: \n");
  ForwardContext training{.training = true};
  const Variable y = prepared.model->forward(
      Variable(random_tensor({2, 4, 4, 3}, 2, DType::kF32), true), training);
  EXPECT_TRUE(quantized(y));
  y.backward(Tensor::full(y.shape(), 1.0));
  std::size_t trained = 0;
  for (const NamedParameter& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
    trained += p.name.ends_with(".value") ? 1 : 0;
  }
  EXPECT_EQ(trained, 3U);
}

TEST(PrepareArithmetic, AnIgnoredConstantEndsTheChain) {
  Rng rng(1);
  const auto model = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"conv", std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3, .out_channels = 6}, rng)},
      {"scale", with(Arithmetic::kMultiply, 1)},
      {"shift", with(Arithmetic::kAdd, 2)}});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  config.ignore = {"shift"};
  EXPECT_EQ(notes(prepare(model, config)),
            "(input): the model's input\nconv: \nscale: in float between quantizers\n"
            "shift: ignored by 'shift'\n");
}

// Each output is the rounded float operation of exact operands.
TEST(QatArithmetic, RoundsOnce) {
  ActivationQuantizer of_a(activations(false)), of_b(activations(false));
  ForwardContext training{.training = true};
  const Variable a =
      of_a.forward(Variable(random_tensor({2, 3, 6}, 1, DType::kF32), true), training);
  const Variable b =
      of_b.forward(Variable(random_tensor({2, 1, 6}, 2, DType::kF32), true), training);
  for (const Arithmetic operation :
       {Arithmetic::kSubtract, Arithmetic::kDivide, Arithmetic::kMaximum, Arithmetic::kMinimum}) {
    QatPairArithmetic of_two(operation, activations(false));
    QatConstantArithmetic of_constant(dynamic_cast<ConstantArithmetic&>(*with(operation, 3)),
                                      activations(false));
    const Variable b_or_more = operation == Arithmetic::kDivide ? b * b + 0.5 : b;
    const Variable pairs = of_two.join({a, b_or_more}, training);
    const Variable reals = PairArithmetic(operation).join({a, b_or_more}, training);
    const Variable constants = of_constant.forward(a, training);
    const auto check = [](const Variable& y, const Tensor& expected) {
      const auto codes = quantized(y);
      ASSERT_TRUE(codes);
      const auto got = values(codes->codes), real = values(expected);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR((got[i] - codes->host_zero_point()) * codes->host_scale(), real[i],
                    0.5001 * codes->host_scale());
      }
    };
    check(pairs, reals.value());
    check(constants, ConstantArithmetic(of_constant.options(), of_constant.value())
                         .forward(a, training)
                         .value());
  }
}

}  // namespace
}  // namespace steelyard::qat
