// Activations of 9 to 16 bits: codes, masks and gradients of every operation that has them against
// the formulas of docs/numerics.md written here with 64-bit integers, and what has no such form.
#include "steelyard/qat/forms/wide_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/layers/qat_concat.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/learned_scale.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::Activation;
using kernels::Granularity;
using testing::message_of;
using testing::random_tensor;

QuantizerConfig codes_of(int bits, bool is_signed = false, Learning learning = Learning::kNothing) {
  return {.scheme = {.bits = bits,
                     .is_signed = is_signed,
                     .symmetric = is_signed,
                     .narrow_range = false},
          .observer = {.type = "min_max"},
          .learning = learning};
}

std::shared_ptr<ActivationQuantizer> quantizer(int bits, bool is_signed, float scale,
                                               std::int32_t zero) {
  auto made = std::make_shared<ActivationQuantizer>(codes_of(bits, is_signed));
  made->set_qparams(0, scale, zero);
  made->set_observing(false);
  return made;
}

// clamp(rint(real / s) + z), clamped to what the activation leaves.
std::int64_t rounded(float real, const FakeQuantize& to, Activation activation) {
  const float s = to.host_scale()[0];
  const float z = static_cast<float>(to.host_zero_point()[0]);
  const auto code = [&](float x) { return std::nearbyint(x / s) + z; };
  float lo = static_cast<float>(to.code_range().qmin),
        hi = static_cast<float>(to.code_range().qmax);
  if (activation != Activation::kNone) lo = std::clamp(code(0), lo, hi);
  if (activation == Activation::kRelu6) hi = std::clamp(code(6), lo, hi);
  return static_cast<std::int64_t>(std::clamp(code(real), lo, hi));
}

std::int64_t code(const Variable& x, std::int64_t i) {
  const Tensor& codes = quantized(x)->codes;
  if (codes.dtype() == DType::kI32) return codes.data<std::int32_t>()[i];
  return codes.dtype() == DType::kI8 ? codes.data<std::int8_t>()[i] : codes.data<std::uint8_t>()[i];
}

struct WidthCase {
  const char* name;
  int in, out;
  bool is_signed;
};
void PrintTo(const WidthCase& c, std::ostream* out) { *out << c.name; }

const WidthCase kWidths[] = {{"u16_to_u16", 16, 16, false}, {"s16_to_s16", 16, 16, true},
                             {"u16_to_u8", 16, 8, false},   {"u8_to_u16", 8, 16, false},
                             {"u9_to_u12", 9, 12, false},   {"s13_to_s8", 13, 8, true}};

class WideCodes : public ::testing::TestWithParam<WidthCase> {
 protected:
  // One-sided data near the ends of the codes: sums far beyond int32.
  Variable input(const Shape& shape, bool requires_grad = false) const {
    const bool is_signed = GetParam().is_signed;
    const std::int32_t zero = is_signed ? 0 : (1 << GetParam().in) / 3;
    const auto in = quantizer(GetParam().in, is_signed, kInScale, zero);
    Tensor x = random_tensor(shape, 5, DType::kF32);
    const float top = static_cast<float>(in->code_range().qmax - zero) * kInScale;
    for (float& v : x.span<float>()) v = top * (v < 0.4F ? 1 - 0.001F * v * v : v - 0.7F);
    ForwardContext context;
    return in->forward(Variable(x, requires_grad), context);
  }
  std::shared_ptr<ActivationQuantizer> output(float scale) const {
    const bool is_signed = GetParam().is_signed;
    return quantizer(GetParam().out, is_signed, scale, is_signed ? 0 : (1 << GetParam().out) / 5);
  }
  QConfig config() const {
    QConfig config = default_w8a8();
    config.activations = codes_of(GetParam().out, GetParam().is_signed);
    return config;
  }
  static constexpr float kInScale = 0.0007F;
};

// sum (q_x - z_x) q_w exactly, for the weights' codes that the layer has now.
struct Sums {
  Sums(QuantizedLayer& layer, const Variable& x)
      : in(quantized(x)), weights(layer.weight_quantizer()->host_scale()) {
    const ForwardContext evaluation;
    const WeightBias bias{in->qparams, codes_beside_bias(*in),
                          layer.bias().defined() ? layer.bias().value() : Tensor(),
                          layer.bias().defined() ? layer.bias().value() : Tensor()};
    codes = layer.weight_quantizer()->quantize_weights(layer.weight().value(), &bias, false,
                                                       evaluation);
  }
  float real(std::int64_t sum, std::int64_t o) const {
    if (codes.bias.defined()) sum += codes.bias.data<std::int32_t>()[o];
    largest = std::max(largest, std::abs(sum));
    const float scale = in->host_scale() * weights[static_cast<std::size_t>(o)];
    return static_cast<float>(sum) * scale;
  }
  std::shared_ptr<const QuantizedValue> in;
  std::vector<float> weights;
  WeightCodes codes;
  mutable std::int64_t largest = 0;
};

TEST_P(WideCodes, LinearAddsThemExactly) {
  constexpr std::int64_t kRows = 7, kFeatures = 2400, kOutputs = 6;
  Rng rng(3);
  Linear source(LinearOptions{kFeatures, kOutputs}, rng);
  for (float& w : source.weight().value().span<float>()) w = std::abs(w);  // sums do not cancel
  QatLinear layer(source, config(), Activation::kRelu);
  const Variable x = input({kRows, kFeatures});
  ForwardContext training{.training = true}, evaluation;
  layer.forward(x, training);
  const Variable y = layer.forward(x, evaluation);
  const Sums sums(layer, x);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < kFeatures; ++k) {
        sum += (code(x, r * kFeatures + k) - sums.in->host_zero_point()) *
               sums.codes.codes.data<std::int8_t>()[o * kFeatures + k];
      }
      ASSERT_EQ(code(y, r * kOutputs + o),
                rounded(sums.real(sum, o), *layer.output_quantizer(), Activation::kRelu))
          << r << " " << o;
    }
  }
  if (GetParam().in == 16) {
    EXPECT_GT(sums.largest, std::int64_t{INT32_MAX});
  }
}

TEST_P(WideCodes, Conv2dAddsThemExactly) {
  constexpr std::int64_t kSide = 6, kIn = 4, kOut = 6, kGroups = 2;
  Rng rng(4);
  Conv2dOptions options{.in_channels = kIn, .out_channels = kOut, .kernel_size = {3, 3}};
  options.padding = {1, 1};
  options.groups = kGroups;
  const Conv2d source(options, rng);
  QConfig quantized_config = config();
  quantized_config.weights->scheme.symmetric = quantized_config.weights->scheme.narrow_range =
      false;
  QatConv2d layer(options, source.weight().value(), source.bias().value(), quantized_config,
                  Activation::kNone);
  const Variable x = input({2, kSide, kSide, kIn});
  ForwardContext training{.training = true}, evaluation;
  layer.forward(x, training);
  const Variable y = layer.forward(x, evaluation);
  const Sums sums(layer, x);
  const auto zeros = layer.weight_quantizer()->host_zero_point();
  for (std::int64_t i = 0; i < y.value().size(); ++i) {
    const std::int64_t o = i % kOut, w = i / kOut % kSide, h = i / kOut / kSide % kSide;
    const std::int64_t n = i / kOut / kSide / kSide, group = o / (kOut / kGroups);
    std::int64_t sum = 0;
    for (std::int64_t c = 0; c < kIn / kGroups; ++c) {
      for (std::int64_t kh = 0; kh < 3; ++kh) {
        for (std::int64_t kw = 0; kw < 3; ++kw) {
          const std::int64_t row = h + kh - 1, column = w + kw - 1;
          if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
          const std::int64_t at =
              ((n * kSide + row) * kSide + column) * kIn + group * (kIn / kGroups) + c;
          const std::int64_t of = ((o * (kIn / kGroups) + c) * 3 + kh) * 3 + kw;
          sum += (code(x, at) - sums.in->host_zero_point()) *
                 (sums.codes.codes.data<std::int8_t>()[of] - zeros[static_cast<std::size_t>(o)]);
        }
      }
    }
    ASSERT_EQ(code(y, i), rounded(sums.real(sum, o), *layer.output_quantizer(), Activation::kNone))
        << i;
  }
}

TEST_P(WideCodes, SumsAndAveragesAreRoundedRealValues) {
  const Variable x = input({3, 4, 4, 5});
  const Tensor real = x.value();
  ForwardContext evaluation;
  const auto out = output(0.05F);
  const Variable sum = add_codes(x, x, Activation::kRelu6, *out, evaluation);
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const float both = real.data<float>()[i] + real.data<float>()[i];
    ASSERT_EQ(code(sum, i), rounded(both, *out, Activation::kRelu6)) << i;
  }
  const auto in = quantized(x);
  const Variable mean = global_avg_pool_codes(x, *out, evaluation);
  for (std::int64_t n = 0; n < 3; ++n) {
    for (std::int64_t c = 0; c < 5; ++c) {
      std::int64_t of_codes = 0;
      for (std::int64_t p = 0; p < 16; ++p) {
        of_codes += code(x, (n * 16 + p) * 5 + c) - in->host_zero_point();
      }
      const float factor = in->host_scale() / 16.0F;
      ASSERT_EQ(code(mean, n * 5 + c),
                rounded(static_cast<float>(of_codes) * factor, *out, Activation::kNone));
    }
  }
  const Variable joined = concat_codes({x, sum}, *out, evaluation);
  for (std::int64_t i = 0; i < real.size(); ++i) {
    ASSERT_EQ(code(joined, i / 5 * 10 + i % 5),
              rounded(real.data<float>()[i], *out, Activation::kNone));
  }
}

TEST_P(WideCodes, MovedCodesKeepTheirGrid) {
  const Variable x = input({2, 4, 4, 3});
  const Tensor real = x.value();
  const auto same = [&](const Variable& y, const Tensor& expected) {
    ASSERT_EQ(quantized(y)->codes.dtype(), quantized(x)->codes.dtype());
    EXPECT_TRUE(testing::all_close(y.value(), expected, 0, 0));
  };
  const NoGradGuard no_grad;
  const Pool2dGeometry pool{{2, 2}, {2, 2}, {0, 0}};
  same(max_pool2d_codes(x, pool), max_pool2d(Variable(real), pool).value());
  same(activation_codes(x, Activation::kRelu),
       apply_activation(Variable(real), Activation::kRelu).value());
  const Variable flat = flatten_codes(x);
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const std::int64_t n = i / 48, c = i % 3, pixel = i / 3 % 16;
    ASSERT_EQ(flat.value().data<float>()[n * 48 + c * 16 + pixel], real.data<float>()[i]);
  }
  Rng rng(9);
  const Variable dropped = dropout_codes(x, {0.5}, rng);
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const float y = dropped.value().data<float>()[i];
    if (y == 0) continue;
    ASSERT_NEAR(y, 2 * real.data<float>()[i], 1e-5 * std::abs(y)) << i;
  }
}

// The gradients of a float layer on the dequantized operands, cut where the output is clipped.
TEST_P(WideCodes, PassGradientsStraightThrough) {
  constexpr std::int64_t kRows = 5, kFeatures = 12, kOutputs = 4;
  Rng rng(3);
  const Linear source(LinearOptions{kFeatures, kOutputs}, rng);
  QatLinear layer(source, config(), Activation::kRelu);
  const Tensor values = random_tensor({kRows, kFeatures}, 8, DType::kF32);
  const auto in =
      quantizer(GetParam().in, GetParam().is_signed, GetParam().in > 9 ? 0.0005F : 0.01F,
                GetParam().is_signed ? 0 : (1 << (GetParam().in - 1)));
  ForwardContext training{.training = true};
  Variable x(values, true);
  const Variable codes = in->forward(x, training);
  const Variable y = layer.forward(codes, training);
  const Tensor grad = random_tensor(y.shape(), 9, DType::kF32);
  y.backward(grad);
  const Tensor real_x = codes.value();
  const Tensor w = layer.weight_quantizer()->forward(layer.weight(), training).value();
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::vector<double> of_x(kFeatures, 0.0);
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      const float real = y.value().data<float>()[r * kOutputs + o];
      const double g = real > 0 ? grad.data<float>()[r * kOutputs + o] : 0;
      for (std::int64_t k = 0; k < kFeatures; ++k) {
        of_x[static_cast<std::size_t>(k)] += g * w.data<float>()[o * kFeatures + k];
      }
    }
    for (std::int64_t k = 0; k < kFeatures; ++k) {
      const float value = values.data<float>()[r * kFeatures + k];
      const bool inside =
          std::abs(real_x.data<float>()[r * kFeatures + k] - value) <= 0.51F * in->host_scale()[0];
      EXPECT_NEAR(x.grad().data<float>()[r * kFeatures + k],
                  inside ? of_x[static_cast<std::size_t>(k)] : 0, 2e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, WideCodes, ::testing::ValuesIn(kWidths),
                         [](const auto& p) { return std::string(p.param.name); });

// LSQ+ at 16 bits: the gradients of latents against the sums in double (Bhalgat et al.).
TEST(WideQuantizer, LearnsScaleAndOffset) {
  ActivationQuantizer learned(codes_of(16, false, Learning::kScaleAndZeroPoint));
  const Tensor first = Tensor::from({-1.0F, 2.0F, 0.5F, 0.25F}, {2, 2});
  ForwardContext training{.training = true};
  learned.forward(Variable(first), training);
  const float s = learned.host_scale()[0];
  const std::int32_t z = learned.host_zero_point()[0];
  EXPECT_NEAR(s, 3.0 / 65535, 1e-9);
  const Tensor values = Tensor::from({-1.5F, 2.5F, 0.3F, 1.1F}, {2, 2});
  const Tensor grad = Tensor::from({1.0F, -2.0F, 3.0F, 0.5F}, {2, 2});
  Variable x(values, true);
  learned.forward(x, training).backward(grad);
  double of_scale = 0, of_offset = 0;
  for (int i = 0; i < 4; ++i) {
    const float t = values.data<float>()[i] / s, g = grad.data<float>()[i];
    const double unclamped = std::nearbyint(t) + z;
    const bool inside = unclamped >= 0 && unclamped <= 65535;
    of_scale += g * (inside ? std::nearbyint(t) - t : std::clamp(unclamped, 0.0, 65535.0));
    of_offset += inside ? 0 : g;
    EXPECT_EQ(x.grad().data<float>()[i], inside ? g : 0.0F);
  }
  const double factor = 1 / std::sqrt(2.0 * 65535);
  for (const NamedParameter& parameter : learned.named_parameters()) {
    const double expected = (parameter.name == kLearnedScale ? of_scale : of_offset) * factor;
    EXPECT_NEAR(parameter.variable.grad().data<float>()[0], expected, 1e-5 * std::abs(expected))
        << parameter.name;
  }
}

TEST(WideQuantizer, CountsNanAndChangesItsWidth) {
  ActivationQuantizer wide(codes_of(16));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  wide.set_qparams(0, 0.001F, 100);
  wide.set_observing(false);
  ForwardContext context;
  const Variable y = wide.forward(Variable(Tensor::from({nan, 1.0F, nan}, {3})), context);
  EXPECT_EQ(code(y, 0), 100);
  EXPECT_EQ(code(y, 1), 1100);
  EXPECT_EQ(wide.take_faults().non_finite, 2);
  wide.set_bits(8);
  EXPECT_EQ(quantized(wide.forward(Variable(Tensor::zeros({2})), context))->codes.dtype(),
            DType::kU8);
  EXPECT_FLOAT_EQ(wide.host_scale()[0], 0.257F);
  const auto saved = module_state(wide);
  ActivationQuantizer other(codes_of(16));
  for (const NamedTensor& tensor : saved) {
    if (tensor.name != "switches") continue;
    EXPECT_EQ(other.scheme_in(tensor.tensor)->bits, 8);
  }
  WeightQuantizer weights(*default_w8a8().weights, 2);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { weights.set_bits(16); }),
            "[fake_quantize] expected at most 8 bits, got 16");
}

TEST(WideCodes, SayWhatHasNoSuchForm) {
  QConfig config = default_w8a8();
  config.activations = codes_of(16);
  const auto message = [](const QConfig& c, Profile profile = Profile::kOrt) {
    return message_of<std::invalid_argument>([&] { validate(c, profile); });
  };
  EXPECT_NO_THROW(validate(config));
  QConfig signed_codes = config;
  signed_codes.activations = codes_of(16, true);
  EXPECT_EQ(message(signed_codes, Profile::kTensorrt),
            "the profile tensorrt has activations of 8 bits, got 16");
  QConfig bad = config;
  bad.weights->scheme.bits = 9;
  EXPECT_EQ(message(bad), "weights have 2 to 8 bits, got 9");
  bad = config;
  bad.activations->scheme.bits = 17;
  EXPECT_EQ(message(bad), "[qscheme] expected 2 to 16 bits, got 17");
  bad.activations->scheme.bits = 16;
  bad.activations->scheme.granularity = Granularity::kToken;
  bad.activations->scheme.dynamic = true;
  EXPECT_EQ(message(bad), "[qscheme] expected 2 to 8 bits with dynamic scales, got 16");
  bad = config;
  bad.activations->observer.type = "entropy";
  EXPECT_NE(message(bad).find("the observer entropy is for at most 8 bits"), std::string::npos);
}

// Tables and the integer softmax know bytes: they stay in float, with the reason.
TEST(WideCodes, StayInFloatWhereATableReadsThem) {
  Rng rng(3);
  const auto net = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"fc1", std::make_shared<Linear>(LinearOptions{8, 4}, rng)},
                                {"gate", std::make_shared<Sigmoid>()},
                                {"fc2", std::make_shared<Linear>(LinearOptions{4, 4}, rng)},
                                {"shares", std::make_shared<Softmax>()}});
  QuantizeConfig config;
  config.groups = {{{"fc1"}, default_w8a8()}, {{"fc2"}, default_w8a8()}};
  config.groups[0].config.activations = codes_of(16);
  const PreparedModel prepared = prepare(net, config);
  for (const PlanRow& row : prepared.plan.rows) {
    if (row.module == "gate") {
      EXPECT_EQ(row.note, "Sigmoid has codes of at most 8 bits, its input has 16");
    }
    if (row.module == "shares") {
      EXPECT_EQ(row.note, "Softmax has codes of at most 8 bits, the group asks for 16");
    }
  }
  ForwardContext training{.training = true};
  const Variable y = prepared.model->forward(Variable(Tensor::full({2, 8}, 0.5)), training);
  EXPECT_EQ(quantized(y), nullptr);
}

}  // namespace
}  // namespace steelyard::qat
