// Activations by table on codes: the rule, gradients, and where prepare() puts them.
#include "steelyard/qat/layers/qat_table_activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/activation_config.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::ActivationFunction;
using testing::random_tensor;
using testing::values;

constexpr kernels::Ramp kRamp{.slope = 0.25, .offset = 0.5};  // a leaky ReLU has the slope alone

double value_of(ActivationFunction activation, double x) {
  if (activation == ActivationFunction::kHardSigmoid) return std::clamp(0.25 * x + 0.5, 0.0, 1.0);
  if (activation == ActivationFunction::kAffine) return 0.25 * x + 0.5;
  if (activation == ActivationFunction::kLeakyRelu) return std::max(x, 0.25 * x);
  if (activation == ActivationFunction::kSigmoid) return 1 / (1 + std::exp(-x));
  if (activation == ActivationFunction::kTanh) return std::tanh(x);
  if (activation == ActivationFunction::kSilu) return x / (1 + std::exp(-x));
  if (activation == ActivationFunction::kGelu) return x * std::erfc(-x / std::sqrt(2.0)) / 2;
  if (activation == ActivationFunction::kTanhGelu) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return x * std::clamp(x + 3, 0.0, 6.0) / 6;
}

double slope_of(ActivationFunction activation, double x) {
  const double h = 1e-5;
  return (value_of(activation, x + h) - value_of(activation, x - h)) / (2 * h);
}

TEST(TableActivationCodes, EachCodeFollowsTheRule) {
  for (const auto activation :
       {ActivationFunction::kSigmoid, ActivationFunction::kSilu, ActivationFunction::kAffine,
        ActivationFunction::kHardswish, ActivationFunction::kHardSigmoid, ActivationFunction::kGelu,
        ActivationFunction::kTanhGelu, ActivationFunction::kLeakyRelu, ActivationFunction::kTanh}) {
    for (const int mix : {0, 1, 2, 3}) {
      Variable leaf(random_tensor({50, 20}, 1, DType::kF32), true);
      for (float& v : leaf.value().span<float>()) v = 5 * v + 0.7F;
      ActivationQuantizer input(activations((mix & 1) != 0));
      ActivationQuantizer output(activations((mix & 2) != 0));
      ForwardContext training{.training = true}, evaluation;
      const Variable x = input.forward(leaf, training);
      output.set_qparams(0, 0.0031F, (mix & 2) != 0 ? -100 : 20);
      const Variable y = table_activation_codes(x, activation, output, evaluation, kRamp);
      const Tensor grad = random_tensor(y.shape(), 3, DType::kF32);
      y.backward(grad);
      const std::vector<double> real = values(x.value()), got = values(quantized(y)->codes);
      const std::vector<double> reached = values(leaf.grad()), given = values(grad);
      const auto out = quantized(y);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto f = static_cast<float>(value_of(activation, real[i]));
        const double code = std::nearbyint(f / 0.0031F) + out->host_zero_point();
        EXPECT_EQ(got[i], std::clamp<double>(code, out->range.qmin, out->range.qmax)) << real[i];
        const bool inside = code >= out->range.qmin && code <= out->range.qmax;
        const double at = activation == ActivationFunction::kHardSigmoid ? 2
                          : activation == ActivationFunction::kLeakyRelu ? 0
                                                                         : 3;
        const double kink = std::abs(std::abs(real[i]) - at);
        if (kink < 1e-4) continue;
        EXPECT_NEAR(reached[i], inside ? slope_of(activation, real[i]) * given[i] : 0, 1e-5);
      }
    }
  }
}

TEST(TableActivationCodes, FloatInputsAndObservedRanges) {
  const Variable x(random_tensor({30, 4}, 1, DType::kF32));
  ForwardContext training{.training = true};
  for (const auto activation : {ActivationFunction::kHardswish, ActivationFunction::kSilu,
                                ActivationFunction::kGelu, ActivationFunction::kTanhGelu}) {
    QatTableActivation layer(activation, activations(false));
    const Variable y = layer.forward(x, training);
    ASSERT_TRUE(quantized(y));
    const auto real = values(x.value()), got = values(y.value());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], value_of(activation, real[i]), 0.005);
    }
  }
}

TEST(PrepareTableActivations, HaveQuantizersOfTheirOwnBetweenLayers) {
  Rng rng(1);
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return std::make_shared<Linear>(LinearOptions{in, out}, rng);
  };
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const PreparedModel prepared = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                                             {"a", linear(6, 8)},
                                             {"swish", std::make_shared<Hardswish>()},
                                             {"b", linear(8, 4)},
                                             {"gelu", std::make_shared<GELU>()},
                                             {"c", linear(4, 4)},
                                             {"tanh_gelu", std::make_shared<TanhGELU>()},
                                             {"scores", std::make_shared<Sigmoid>()}}),
                                         config);
  std::string text;
  for (const PlanRow& row : prepared.plan.rows) {
    if (row.tensor == "output") text += row.module + ": " + row.note + "\n";
  }
  EXPECT_EQ(text,
            "(input): the model's input\na: \nswish: by a table of codes\nb: \n"
            "gelu: by a table of codes\nc: \ntanh_gelu: by a table of codes\n"
            "scores: by a table of codes\n");
  ForwardContext training{.training = true};
  const Variable y =
      prepared.model->forward(Variable(random_tensor({5, 6}, 2, DType::kF32), true), training);
  ASSERT_TRUE(quantized(y));
  y.backward(Tensor::full(y.shape(), 1.0));
  for (const NamedParameter& p : prepared.model->named_parameters()) {
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
  }
}

}  // namespace
}  // namespace steelyard::qat
