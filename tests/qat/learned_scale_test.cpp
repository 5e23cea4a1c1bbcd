// Learned scales and zero points: gradients against the papers' formulas in double, and their life
// from the observer's range to freezing.
#include "steelyard/qat/quantizers/learned_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::learned_scale_test {
namespace {

using testing::random_tensor;

struct Expected {
  double scale = 0;
  double offset = 0;
};

// The gradients of LSQ, which holds the zero point, or of LSQ+, which holds the real value of the
// lowest code, for values that share a scale; in double, but t = x / s in float, as quantization
// divides.
Expected closed_form(std::span<const float> x, std::span<const float> grad,
                     const kernels::CodeGrid<float>& grid, bool symmetric, double shared,
                     bool learns_offset = false) {
  Expected sums;
  const double held = learns_offset ? grid.qmin : grid.zero_point;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float t = x[i] / grid.scale;
    const double unclamped = std::nearbyint(static_cast<double>(t)) + grid.zero_point;
    const bool inside = unclamped >= grid.qmin && unclamped <= grid.qmax;
    const double code = std::clamp<double>(unclamped, grid.qmin, grid.qmax);
    sums.scale += grad[i] * (inside ? std::nearbyint(static_cast<double>(t)) - t : code - held);
    sums.offset += inside ? 0.0 : static_cast<double>(grad[i]);
  }
  const double steps = symmetric ? grid.qmax : grid.qmax - grid.qmin;
  const double g = 1 / std::sqrt(shared * steps);
  return {g * sums.scale, g * sums.offset};
}

QuantizerConfig activations(int bits, Learning learning, bool symmetric = false) {
  return {.scheme = {.bits = bits,
                     .is_signed = symmetric,
                     .symmetric = symmetric,
                     .narrow_range = false},
          .observer = {.type = "min_max"},
          .learning = learning};
}

QuantizerConfig weights(int bits, kernels::Granularity granularity) {
  return {.scheme = {.bits = bits, .narrow_range = false, .granularity = granularity},
          .observer = {.type = "min_max"},
          .learning = Learning::kScale};
}

// A scale for every two of the weights.
QuantizerConfig pairs_of_weights(int bits) {
  QuantizerConfig config = weights(bits, kernels::Granularity::kGroup);
  config.scheme.group_size = 2;
  return config;
}

Variable parameter(const Module& module, const std::string& name) {
  for (const NamedParameter& p : module.named_parameters()) {
    if (p.name == name) return p.variable;
  }
  throw std::out_of_range(name);
}

ForwardContext training() { return {.training = true}; }

TEST(LearnedScale, IsPositiveForEveryLatentAndTheLatentAtFirst) {
  const kernels::CodeRange range{-8, 7};
  const float s0 = 0.013F;
  EXPECT_FLOAT_EQ(kernels::scale_of_latent(s0, s0, 0, range), s0);
  EXPECT_NEAR((kernels::scale_of_latent(s0 * 0.999F, s0, 0, range) - s0) / (s0 * -0.001), 1, 0.01);
  EXPECT_EQ(kernels::scale_of_latent(0.014F, s0, 0, range), 0.014F);
  EXPECT_EQ(kernels::scale_of_latent(5, s0, 0, range), 5) << "a large step is no larger than LSQ's";
  for (const float latent : {-1e30F, -1.0F, 0.0F, 1e-30F, 1.0F, 1e30F}) {
    const float scale = kernels::scale_of_latent(latent, s0, 0, range);
    EXPECT_GE(scale, std::numeric_limits<float>::min()) << latent;
    EXPECT_TRUE(std::isfinite(scale * 15)) << latent;
  }
  EXPECT_EQ(kernels::scale_of_latent(-1, s0, 0.5F, range), 0.5F)
      << "the floor that a bias asks for";
}

constexpr std::int64_t kIn = 6;
constexpr std::int64_t kOut = 4;

class LearnedWeights : public ::testing::TestWithParam<std::tuple<int, kernels::Granularity>> {};

TEST_P(LearnedWeights, GradientsAreLsqs) {
  const auto [bits, granularity] = GetParam();
  Rng rng(3);
  const Linear source(LinearOptions{kIn, kOut}, rng);
  const bool groups = granularity == kernels::Granularity::kGroup;
  QatLinear layer(source, {.weights = groups ? pairs_of_weights(bits) : weights(bits, granularity),
                           .activations = {}});
  ForwardContext context = training();
  const Variable x(random_tensor({7, kIn}, 1, DType::kF32));
  const Tensor grad = random_tensor({7, kOut}, 2, DType::kF32);
  layer.forward(x, context);  // begins
  // Away from the start, and small enough that codes are clipped.
  Variable latent = parameter(layer, "weight_quantizer.learned_scale");
  for (float& v : latent.value().span<float>()) v *= 0.3F;
  layer.forward(x, context).backward(grad);

  const Tensor w = layer.weight().value();
  Tensor grad_w = Tensor::zeros({kOut, kIn});
  for (std::int64_t o = 0; o < kOut; ++o) {
    for (std::int64_t i = 0; i < kIn; ++i) {
      double sum = 0;
      for (std::int64_t n = 0; n < 7; ++n) {
        sum += static_cast<double>(grad.data<float>()[n * kOut + o]) *
               x.value().data<float>()[n * kIn + i];
      }
      grad_w.data<float>()[o * kIn + i] = static_cast<float>(sum);
    }
  }
  const FakeQuantize& quantizer = *layer.weight_quantizer();
  const auto channels = static_cast<std::size_t>(latent.value().size());
  const std::size_t each = kIn * kOut / channels;
  EXPECT_EQ(channels, groups ? 12U : granularity == kernels::Granularity::kChannel ? 4U : 1U);
  bool clipped = false;
  for (std::size_t c = 0; c < channels; ++c) {
    const float s = quantizer.host_scale()[c];
    const Expected expected = closed_form(w.span<float>().subspan(c * each, each),
                                          grad_w.span<float>().subspan(c * each, each),
                                          kernels::make_code_grid(quantizer.code_range(), s, 0),
                                          /*symmetric=*/true, static_cast<double>(each));
    const double s0 = latent.value().data<float>()[c] / 0.3F;
    EXPECT_NEAR(latent.grad().data<float>()[c], expected.scale * s / s0,
                2e-5 * (1 + std::abs(expected.scale)));
    const auto grid = kernels::make_code_grid(quantizer.code_range(), s, 0);
    for (const float value : w.span<float>().subspan(c * each, each)) {
      clipped |= !kernels::is_inside(value, grid);
    }
  }
  EXPECT_TRUE(clipped);
  // The weight's own gradient stops where codes are clipped.
  for (std::size_t i = 0; i < kIn * kOut; ++i) {
    const kernels::CodeGrid<float> grid =
        kernels::make_code_grid(quantizer.code_range(), quantizer.host_scale()[i / each], 0);
    const float value = layer.weight().grad().data<float>()[i];
    if (kernels::is_inside(w.data<float>()[i], grid)) {
      EXPECT_NEAR(value, grad_w.data<float>()[i], 1e-5);
    } else {
      EXPECT_EQ(value, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BitsAndStrategies, LearnedWeights,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8),
                                            ::testing::Values(kernels::Granularity::kTensor,
                                                              kernels::Granularity::kChannel,
                                                              kernels::Granularity::kGroup)));

class LearnedActivations : public ::testing::TestWithParam<std::tuple<int, Learning, bool>> {};

TEST_P(LearnedActivations, GradientsAreLsqs) {
  const auto [bits, learning, symmetric] = GetParam();
  ActivationQuantizer quantizer(activations(bits, learning, symmetric));
  ForwardContext context = training();
  const Tensor values = random_tensor({6, 3, 5}, 4, DType::kF32);
  const Tensor grad = random_tensor({6, 3, 5}, 5, DType::kF32);
  quantizer.forward(Variable(values), context);  // begins
  Variable latent = parameter(quantizer, "learned_scale");
  const float s0 = latent.value().data<float>()[0];
  latent.value().data<float>()[0] *= 0.5F;
  const float s = quantizer.host_scale()[0];
  const bool learns_offset = learning == Learning::kScaleAndZeroPoint && !symmetric;
  if (learns_offset) parameter(quantizer, "learned_offset").value().data<float>()[0] *= s / s0;
  const Variable x(values, /*requires_grad=*/true);
  quantizer.forward(x, context).backward(grad);

  const std::int32_t z = quantizer.host_zero_point()[0];
  const Expected expected = closed_form(values.span<float>(), grad.span<float>(),
                                        kernels::make_code_grid(quantizer.code_range(), s, z),
                                        symmetric, 15, learns_offset);
  EXPECT_NEAR(latent.grad().data<float>()[0], expected.scale * s / s0,
              2e-5 * (1 + std::abs(expected.scale)));
  if (learns_offset) {
    EXPECT_NEAR(parameter(quantizer, "learned_offset").grad().data<float>()[0], expected.offset,
                2e-5 * (1 + std::abs(expected.offset)));
    EXPECT_NE(expected.offset, 0);
  } else {
    EXPECT_THROW(parameter(quantizer, "learned_offset"), std::out_of_range);
  }
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const auto grid = kernels::make_code_grid(quantizer.code_range(), s, z);
    const bool inside = kernels::is_inside(values.data<float>()[i], grid);
    EXPECT_EQ(x.grad().data<float>()[i], inside ? grad.data<float>()[i] : 0.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LearnedActivations,
                         ::testing::Combine(::testing::Values(2, 4, 8),
                                            ::testing::Values(Learning::kScale,
                                                              Learning::kScaleAndZeroPoint),
                                            ::testing::Bool()));

// PACT: d(alpha) is the sum of the gradients of clipped values, alpha the largest value; a step on
// the latent moves alpha by what a step on alpha would.
TEST(LearnedClipping, GradientsArePacts) {
  for (const int bits : {2, 4, 8}) {
    ActivationQuantizer quantizer(activations(bits, Learning::kClipping));
    ForwardContext context = training();
    Tensor values = random_tensor({6, 3, 5}, 4, DType::kF32);
    for (float& v : values.span<float>()) v = std::max(v, 0.0F);
    const Tensor grad = random_tensor({6, 3, 5}, 5, DType::kF32);
    quantizer.forward(Variable(values), context);  // begins
    Variable latent = parameter(quantizer, "learned_scale");
    const float s0 = latent.value().data<float>()[0];
    latent.value().data<float>()[0] *= 0.8F;
    quantizer.forward(Variable(values, /*requires_grad=*/true), context).backward(grad);

    const double steps = (1 << bits) - 1;
    const float s = quantizer.host_scale()[0];
    ASSERT_EQ(quantizer.host_zero_point()[0], 0);
    double alpha_gradient = 0;
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const bool clipped = std::nearbyint(values.data<float>()[i] / s) > steps;
      alpha_gradient += clipped ? grad.data<float>()[i] : 0.0;
    }
    ASSERT_NE(alpha_gradient, 0);
    // alpha = steps * s: its step -d(alpha) moves s by -d(alpha) / steps.
    EXPECT_NEAR(latent.grad().data<float>()[0], alpha_gradient / steps * s / s0,
                1e-5 * std::abs(alpha_gradient));
  }
}

// Producers that quantize their integer results hand the same gradients to the quantizer as it
// computes itself from the real values.
TEST(LearnedOutputs, GetTheGradientsOfTheRealValues) {
  ForwardContext context = training();
  ActivationQuantizer in_a(activations(8, Learning::kNothing));
  ActivationQuantizer in_b(activations(8, Learning::kNothing));
  const Tensor values_a = random_tensor({3, 4, 4, 2}, 6, DType::kF32);
  const Tensor values_b = random_tensor({3, 4, 4, 2}, 7, DType::kF32);
  const auto check = [&](const auto& produce, const auto& real_values) {
    ActivationQuantizer out(activations(3, Learning::kScaleAndZeroPoint));
    ActivationQuantizer plain(activations(3, Learning::kScaleAndZeroPoint));
    const Variable a = in_a.forward(Variable(values_a, true), context);
    const Variable b = in_b.forward(Variable(values_b, true), context);
    const Tensor real = real_values(a.value(), b.value());
    produce(a, b, out);
    plain.forward(Variable(real), context);
    for (FakeQuantize* q : {&out, &plain}) {
      parameter(*q, "learned_scale").value().data<float>()[0] *= 0.7F;
    }
    EXPECT_NEAR(out.host_scale()[0], plain.host_scale()[0], 1e-6F);
    const Variable y = produce(a, b, out);
    const Tensor grad = random_tensor(y.shape(), 8, DType::kF32);
    y.backward(grad);
    plain.forward(Variable(real), context).backward(grad);
    for (const char* name : {"learned_scale", "learned_offset"}) {
      const float got = parameter(out, name).grad().data<float>()[0];
      const float expected = parameter(plain, name).grad().data<float>()[0];
      EXPECT_NEAR(got, expected, 1e-3 * (1 + std::abs(expected))) << name;
      EXPECT_NE(expected, 0) << name;
    }
  };
  check(
      [&](const Variable& a, const Variable& b, ActivationQuantizer& out) {
        return add_codes(a, b, kernels::Activation::kNone, out, context);
      },
      [](const Tensor& a, const Tensor& b) {
        Tensor sum = Tensor::empty(a.shape());
        for (std::int64_t i = 0; i < a.size(); ++i) {
          sum.data<float>()[i] = a.data<float>()[i] + b.data<float>()[i];
        }
        return sum;
      });
  check([&](const Variable& a, const Variable&,
            ActivationQuantizer& out) { return global_avg_pool_codes(a, out, context); },
        [](const Tensor& a, const Tensor&) { return global_avg_pool(Variable(a)).value(); });
}

TEST(LearnedOutputs, OfAnIntegerLayerWithItsActivation) {
  Rng rng(3);
  const Linear source(LinearOptions{6, 4}, rng);
  QatLinear layer(source,
                  {.weights = weights(4, kernels::Granularity::kChannel),
                   .activations = activations(3, Learning::kScale)},
                  kernels::Activation::kRelu);
  ActivationQuantizer input(activations(8, Learning::kNothing));
  ForwardContext context = training();
  const Tensor values = random_tensor({9, 6}, 4, DType::kF32);
  const auto run = [&] { return layer.forward(input.forward(Variable(values), context), context); };
  run();
  Variable latent = parameter(layer, "output_quantizer.learned_scale");
  const float s0 = latent.value().data<float>()[0];
  latent.value().data<float>()[0] *= 0.6F;
  const Variable y = run();
  const Tensor grad = random_tensor({9, 4}, 5, DType::kF32);
  y.backward(grad);

  // The real results from the codes: relu(sum (x - z) s_x * w s_w + bias).
  const auto codes = quantized(input.forward(Variable(values), context));
  const FakeQuantize& wq = *layer.weight_quantizer();
  Tensor real = Tensor::empty({9, 4});
  for (std::int64_t n = 0; n < 9; ++n) {
    for (std::int64_t o = 0; o < 4; ++o) {
      const float sw = wq.host_scale()[static_cast<std::size_t>(o)];
      const auto grid = kernels::make_code_grid(wq.code_range(), sw, 0);
      std::int64_t sum =
          kernels::quantize_bias(layer.bias().value().data<float>()[o], codes->host_scale() * sw);
      for (std::int64_t k = 0; k < 6; ++k) {
        sum += (codes->codes.data<std::uint8_t>()[n * 6 + k] - codes->host_zero_point()) *
               kernels::quantize_value(layer.weight().value().data<float>()[o * 6 + k], grid);
      }
      real.data<float>()[n * 4 + o] =
          std::max(0.0F, static_cast<float>(sum) * (codes->host_scale() * sw));
    }
  }
  const FakeQuantize& out = *layer.output_quantizer();
  const Expected expected = closed_form(
      real.span<float>(), grad.span<float>(),
      kernels::make_code_grid(out.code_range(), out.host_scale()[0], out.host_zero_point()[0]),
      /*symmetric=*/false, 4);
  EXPECT_NEAR(latent.grad().data<float>()[0], expected.scale * out.host_scale()[0] / s0, 1e-4);
  EXPECT_NE(expected.scale, 0);
}

TEST(LearnedLife, BeginsWhereTheObserverStandsAndThenOnlyLearns) {
  ActivationQuantizer quantizer(activations(4, Learning::kScaleAndZeroPoint));
  ForwardContext context = training();
  quantizer.set_quantizing(false);
  quantizer.forward(Variable(Tensor::full({2, 2}, 3.0)), context);
  quantizer.set_quantizing(true);
  EXPECT_FALSE(quantizer.learns(context));
  quantizer.forward(Variable(Tensor::full({2, 2}, -1.5)), context);  // the last that it observes
  EXPECT_TRUE(quantizer.learns(context));
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 4.5F / 15);
  EXPECT_EQ(quantizer.host_zero_point()[0], 5);
  quantizer.forward(Variable(Tensor::full({2, 2}, 300.0)), context);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 4.5F / 15);
  Variable offset = parameter(quantizer, "learned_offset");
  EXPECT_FLOAT_EQ(offset.value().data<float>()[0], -1.5F);
  offset.value().data<float>()[0] = -2.6F * 0.3F;  // steps of 0.3 below 0
  EXPECT_EQ(quantizer.host_zero_point()[0], 3);
  offset.value().data<float>()[0] = -99;
  EXPECT_EQ(quantizer.host_zero_point()[0], 15);
  offset.value().data<float>()[0] = 99;
  EXPECT_EQ(quantizer.host_zero_point()[0], 0);
}

struct Trained {
  double error = 0;  // mean square, of the last step
  std::int32_t zero_point = 0;
};

// Fits a quantizer to values of `shape(v)`, v within [-1, 1], by the gradient of the squared error.
// Its first batch has only the largest value, so that it begins with the zero point 0.
template <typename Shape>
Trained fitted(int bits, Learning learning, const Shape& shape) {
  ActivationQuantizer quantizer(activations(bits, learning));
  ForwardContext context = training();
  quantizer.forward(Variable(Tensor::full({4, 64}, static_cast<double>(shape(1.0F)))), context);
  EXPECT_EQ(quantizer.host_zero_point()[0], 0);
  Trained result;
  for (unsigned step = 0; step < 256; ++step) {
    Tensor x = random_tensor({16, 64}, step, DType::kF32);
    for (float& v : x.span<float>()) v = shape(v);
    const Variable y = quantizer.forward(Variable(x), context);
    Tensor grad = Tensor::empty(x.shape());
    double error = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const float difference = y.value().data<float>()[i] - x.data<float>()[i];
      grad.data<float>()[i] = difference / 8;
      error += static_cast<double>(difference) * difference;
    }
    result.error = error / static_cast<double>(x.size());
    y.backward(grad);
    for (const NamedParameter& p : quantizer.named_parameters()) {
      Variable latent = p.variable;
      latent.value().data<float>()[0] -= 0.05F * latent.grad().data<float>()[0];
      latent.clear_grad();
    }
  }
  result.zero_point = quantizer.host_zero_point()[0];
  return result;
}

// With the zero point held at its wrong start negative values stay clipped. Learned offsets move it
// to where they are.
TEST(LearnedOffset, LeavesAWrongStartAndBeatsAFixedZeroPoint) {
  const auto shifted = [](float v) { return 2.25F * v + 0.75F; };  // -1.5 to 3
  for (const int bits : {2, 3, 4, 8}) {
    const Trained fixed = fitted(bits, Learning::kScale, shifted);
    const Trained moved = fitted(bits, Learning::kScaleAndZeroPoint, shifted);
    EXPECT_EQ(fixed.zero_point, 0);
    EXPECT_NEAR(moved.zero_point, ((1 << bits) - 1) / 3.0, 0.2 * (1 << bits)) << bits;
    EXPECT_LT(moved.error, 0.5 * fixed.error) << bits;
  }
  const auto silu = [](float v) { return 4 * v / (1 + std::exp(-4 * v)); };  // -0.28 to 3.9
  const Trained fixed = fitted(4, Learning::kScale, silu);
  const Trained moved = fitted(4, Learning::kScaleAndZeroPoint, silu);
  EXPECT_EQ(moved.zero_point, 1);
  EXPECT_LT(moved.error, 0.8 * fixed.error);
}

TEST(LearnedLife, FreezingEndsLearning) {
  ActivationQuantizer quantizer(activations(4, Learning::kScale));
  ForwardContext context = training();
  const Variable x(random_tensor({4, 3}, 1, DType::kF32), true);
  quantizer.forward(x, context);
  quantizer.set_observing(false);
  quantizer.forward(x, context).backward(Tensor::full({4, 3}, 1.0));
  EXPECT_FALSE(parameter(quantizer, "learned_scale").grad().defined());
  EXPECT_TRUE(x.grad().defined());
  const NoGradGuard no_grad;
  quantizer.set_observing(true);
  EXPECT_FALSE(quantizer.forward(x, context).requires_grad());
}

TEST(LearnedLife, ALatentThatIsNotFiniteIsCounted) {
  ActivationQuantizer quantizer(activations(4, Learning::kScale));
  ForwardContext context = training();
  quantizer.forward(Variable(random_tensor({4, 3}, 1, DType::kF32)), context);
  const float scale = quantizer.host_scale()[0];
  EXPECT_EQ(quantizer.take_faults().non_finite, 0);
  parameter(quantizer, "learned_scale").value().data<float>()[0] = NAN;
  EXPECT_EQ(quantizer.host_scale()[0], scale);
  EXPECT_GT(quantizer.take_faults().non_finite, 0);
}

TEST(LearnedLife, LatentsAreTold) {
  EXPECT_TRUE(is_latent("conv1.weight_quantizer.learned_scale"));
  EXPECT_TRUE(is_latent("output_quantizer.learned_offset"));
  EXPECT_FALSE(is_latent("conv1.weight"));
}

}  // namespace
}  // namespace steelyard::qat::learned_scale_test
