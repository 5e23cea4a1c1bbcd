// Products of two values on codes: the rule, gradients, and where prepare() puts them.
#include "steelyard/qat/layers/qat_mul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/activation_config.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::random_tensor;
using testing::values;

TEST(MultiplyCodes, EachCodeFollowsTheRule) {
  for (const int mix : {0, 1, 2, 3, 4, 7}) {
    ActivationQuantizer of_a(activations((mix & 1) != 0)), of_b(activations((mix & 2) != 0));
    ActivationQuantizer output(activations((mix & 4) != 0));
    ForwardContext training{.training = true}, evaluation;
    const Variable leaf_a(random_tensor({2, 3, 4, 5}, 1, DType::kF32), true);
    const Variable leaf_b(random_tensor({2, 1, 1, 5}, 2, DType::kF32), true);
    const Variable a = of_a.forward(leaf_a, training), b = of_b.forward(leaf_b, training);
    const std::int32_t zero_point = (mix & 4) != 0 ? 7 : 120;
    output.set_qparams(0, 0.004F, zero_point);  // clips some
    const Variable y = multiply_codes(a, b, output, evaluation);
    const auto qa = quantized(a), qb = quantized(b), qy = quantized(y);
    const auto codes_a = values(qa->codes), codes_b = values(qb->codes), got = values(qy->codes);
    const float ratio = qa->host_scale() * qb->host_scale() / 0.004F;
    const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
    y.backward(grad);
    std::vector<double> grad_b(leaf_b.value().size(), 0);
    const auto real_a = values(a.value()), real_b = values(b.value());
    const auto given = values(grad), grad_a = values(leaf_a.grad());
    std::int64_t clipped = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t of = i / 60 * 5 + i % 5;
      const double product =
          (codes_a[i] - qa->host_zero_point()) * (codes_b[of] - qb->host_zero_point());
      const int shift = (mix & 4) != 0 ? 128 : 0;
      const float byte =
          static_cast<float>(product) * ratio + static_cast<float>(zero_point + shift);
      const double code = std::nearbyint(byte) - shift;
      EXPECT_EQ(got[i], std::clamp<double>(code, qy->range.qmin, qy->range.qmax)) << i;
      const bool inside = code >= qy->range.qmin && code <= qy->range.qmax;
      clipped += inside ? 0 : 1;
      EXPECT_NEAR(grad_a[i], inside ? real_b[of] * given[i] : 0, 1e-5);
      grad_b[of] += inside ? real_a[i] * given[i] : 0;
    }
    EXPECT_GT(clipped, 0);
    const auto reached = values(leaf_b.grad());
    for (std::size_t i = 0; i < reached.size(); ++i) EXPECT_NEAR(reached[i], grad_b[i], 1e-4);
  }
}

// 23 * 175 * (s_a * s_b / s_y) = 30.499998; 21 more is 51.5 in f32. ONNX Runtime 1.30 gives 52.
TEST(MultiplyCodes, TheZeroPointIsAddedBeforeRounding) {
  ActivationQuantizer of_a(activations(false)), of_b(activations(false));
  ActivationQuantizer output(activations(false));
  of_a.set_qparams(0, 0.029779412F, 0);
  of_b.set_qparams(0, 0.0032781863F, 0);
  output.set_qparams(0, 0.012882966F, 21);
  ForwardContext evaluation;
  const auto of = [&](float value) { return Variable(Tensor::full({1}, value, DType::kF32)); };
  const Variable a = of_a.forward(of(23 * 0.029779412F), evaluation);
  const Variable b = of_b.forward(of(175 * 0.0032781863F), evaluation);
  EXPECT_EQ(values(quantized(multiply_codes(a, b, output, evaluation))->codes)[0], 52);
}

// Sums of more than 258 products are added in parts.
TEST(MultiplyMatrices, EachCodeFollowsTheRule) {
  for (const std::int64_t terms : {5, 258, 700}) {
    ActivationQuantizer of_a(activations(false)), of_b(activations(true));
    ActivationQuantizer output(activations(false));
    ForwardContext training{.training = true}, evaluation;
    const Variable leaf_a(random_tensor({2, 3, terms}, 1, DType::kF32), true);
    const Variable leaf_b(random_tensor({2, terms, 4}, 2, DType::kF32), true);
    const Variable a = of_a.forward(leaf_a, training), b = of_b.forward(leaf_b, training);
    const float scale = 0.0025F * std::sqrt(static_cast<float>(terms));
    output.set_qparams(0, scale, 120);  // clips some
    const Variable y = multiply_matrices(a, b, output, evaluation);
    const auto qa = quantized(a), qb = quantized(b), qy = quantized(y);
    const auto codes_a = values(qa->codes), codes_b = values(qb->codes), got = values(qy->codes);
    const float ratio = qa->host_scale() * qb->host_scale() / scale;
    const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
    y.backward(grad);
    const auto real_a = values(a.value()), real_b = values(b.value()), given = values(grad);
    std::vector<double> grad_a(real_a.size(), 0), grad_b(real_b.size(), 0);
    std::int64_t clipped = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto k = static_cast<std::size_t>(terms);
      const std::size_t row = i / 4 * k, column = i / 12 * k * 4 + i % 4;
      std::int64_t sum = 0;
      for (std::size_t j = 0; j < k; ++j) {
        sum += static_cast<std::int64_t>((codes_a[row + j] - qa->host_zero_point()) *
                                         (codes_b[column + 4 * j] - qb->host_zero_point()));
      }
      const double code = std::nearbyint(static_cast<float>(sum) * ratio) + 120;
      EXPECT_EQ(got[i], std::clamp<double>(code, qy->range.qmin, qy->range.qmax)) << i;
      const bool inside = code >= qy->range.qmin && code <= qy->range.qmax;
      clipped += inside ? 0 : 1;
      for (std::size_t j = 0; inside && j < k; ++j) {
        grad_a[row + j] += real_b[column + 4 * j] * given[i];
        grad_b[column + 4 * j] += real_a[row + j] * given[i];
      }
    }
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, std::ssize(got));
    const auto reached_a = values(leaf_a.grad()), reached_b = values(leaf_b.grad());
    for (std::size_t i = 0; i < grad_a.size(); ++i) EXPECT_NEAR(reached_a[i], grad_a[i], 1e-4);
    for (std::size_t i = 0; i < grad_b.size(); ++i) EXPECT_NEAR(reached_b[i], grad_b[i], 1e-4);
  }
}

TEST(MultiplyMatrices, RefusesSumsThatInt32CannotHold) {
  ActivationQuantizer of_codes(activations(false)), output(activations(false));
  ForwardContext training{.training = true};
  const Variable a = of_codes.forward(Variable(Tensor::zeros({1, 1, 33026})), training);
  const Variable b = of_codes.forward(Variable(Tensor::zeros({1, 33026, 1})), training);
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [&] { multiply_matrices(a, b, output, training); }),
            "[quantized_matmul] expected sums of at most 33025 products, so that they fit int32, "
            "got 33026");
}

TEST(PrepareMul, GatesHaveQuantizersOfTheirOwn) {
  Rng rng(1);
  const auto conv = [&](std::int64_t in, std::int64_t out) {
    return std::make_shared<Conv2d>(Conv2dOptions{.in_channels = in, .out_channels = out}, rng);
  };
  const auto whole = std::make_shared<AvgPool2d>(
      AvgPool2dOptions{{.kernel = {4, 4}, .stride = {1, 1}, .padding = {0, 0}}});
  const auto model = std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"conv", conv(3, 6)},
      {"pool", whole},
      {"squeeze", conv(6, 6)},
      {"gate", std::make_shared<HardSigmoid>(0.2, 0.5)},
      {"mul", std::make_shared<PairArithmetic>(Arithmetic::kMultiply), {"conv", "gate"}},
      {"sub", std::make_shared<PairArithmetic>(Arithmetic::kSubtract), {"mul", "conv"}}});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  const PreparedModel prepared = prepare(model, config);
  std::string text;
  for (const PlanRow& row : prepared.plan.rows) {
    if (row.tensor != "weight" && row.tensor != "bias") text += row.module + ": " + row.note + "\n";
  }
  EXPECT_EQ(text,
            "(input): the model's input\nconv: \npool: of the integer average\nsqueeze: \n"
            "gate: by a table of codes\nmul: of the product\nsub: in float between quantizers\n");
  ForwardContext training{.training = true};
  const Variable y = prepared.model->forward(
      Variable(random_tensor({2, 4, 4, 3}, 2, DType::kF32), true), training);
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const NamedParameter& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
  }
}

}  // namespace
}  // namespace steelyard::qat
