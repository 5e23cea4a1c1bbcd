// Activations with scales of their own values: codes, products and gradients against loops written
// here, and what has no such form.
#include "steelyard/qat/quantizers/dynamic_quantize.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::dynamic_quantize_test {
namespace {

using kernels::Granularity;
using observers::QScheme;
using testing::message_of;
using testing::random_tensor;

constexpr std::int64_t kRows = 6, kFeatures = 12, kOutputs = 5;

QScheme rows_scheme(std::int64_t group_size, bool symmetric, int bits = 8) {
  return {.bits = bits,
          .is_signed = symmetric,
          .symmetric = symmetric,
          .narrow_range = false,
          .granularity = group_size > 0 ? Granularity::kGroup : Granularity::kToken,
          .group_size = group_size,
          .dynamic = true};
}

QScheme blocks_scheme(std::int64_t rows, std::int64_t columns, bool symmetric) {
  QScheme scheme = rows_scheme(0, symmetric);
  scheme.granularity = Granularity::kBlock;
  scheme.block = {rows, columns};
  return scheme;
}

struct DynamicCase {
  const char* name;
  QScheme inputs;
  QScheme weights;
};
void PrintTo(const DynamicCase& c, std::ostream* out) { *out << c.name; }

QScheme weights_scheme(Granularity granularity, std::int64_t group_size = 0,
                       bool symmetric = true) {
  return {.bits = 4,
          .symmetric = symmetric,
          .narrow_range = symmetric,
          .granularity = granularity,
          .group_size = group_size};
}

const DynamicCase kCases[] = {
    {"token", rows_scheme(0, false), weights_scheme(Granularity::kChannel)},
    {"token_signed", rows_scheme(0, true), weights_scheme(Granularity::kTensor)},
    {"token_3_bits", rows_scheme(0, false, 3), weights_scheme(Granularity::kChannel, 0, false)},
    {"token_and_groups", rows_scheme(0, false), weights_scheme(Granularity::kGroup, 4, false)},
    {"groups", rows_scheme(4, false), weights_scheme(Granularity::kChannel)},
    {"groups_of_both", rows_scheme(3, true), weights_scheme(Granularity::kGroup, 3)},
    {"wide_groups", rows_scheme(64, false), weights_scheme(Granularity::kTensor, 0, false)},
    {"blocks", blocks_scheme(2, 4, false), weights_scheme(Granularity::kChannel, 0, false)},
    {"ragged_blocks", blocks_scheme(4, 12, false), weights_scheme(Granularity::kTensor)},
    {"blocks_and_groups", blocks_scheme(4, 3, true), weights_scheme(Granularity::kGroup, 3)},
    {"one_block", blocks_scheme(64, 64, true), weights_scheme(Granularity::kGroup, 4)},
};

// Rows of other sizes and signs, one of zeros.
Tensor rows_of_values() {
  const Tensor x = random_tensor({2, kRows / 2, kFeatures}, 5, DType::kF32);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t row = i / kFeatures;
    x.data<float>()[i] =
        row == 2 ? 0.0F
                 : x.data<float>()[i] * static_cast<float>(1 << row) + (row == 4 ? 40.0F : 0.0F);
  }
  return x;
}

struct Grid {
  float scale;
  std::int32_t zero_point;
};

// The definition: the range of the values, extended to hold 0, over all codes; in double.
Grid grid_of(const std::vector<float>& values, const QScheme& scheme) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double lo = std::min(0.0F, *least), hi = std::max(0.0F, *most);
  const auto codes = scheme.code_range();
  if (lo == 0 && hi == 0) return {1, std::clamp(0, codes.qmin, codes.qmax)};
  if (scheme.symmetric) return {static_cast<float>(std::max(-lo, hi) / codes.qmax), 0};
  const double scale = (hi - lo) / (codes.qmax - codes.qmin);
  return {static_cast<float>(scale),
          static_cast<std::int32_t>(std::nearbyint(codes.qmin - lo / scale))};
}

double code_of(float value, const Grid& grid, const QScheme& scheme) {
  const auto codes = scheme.code_range();
  return std::clamp<double>(std::nearbyint(value / grid.scale) + grid.zero_point, codes.qmin,
                            codes.qmax);
}

class DynamicActivations : public ::testing::TestWithParam<DynamicCase> {
 protected:
  DynamicActivations() : rng_(3), source_(LinearOptions{kFeatures, kOutputs}, rng_) {
    QConfig config;
    config.weights = QuantizerConfig{GetParam().weights, {.type = "min_max"}};
    config.activations = QuantizerConfig{GetParam().inputs, {.type = "min_max"}};
    layer_ = std::make_unique<QatLinear>(source_, config);
  }
  // Rows and features that share a scale.
  static std::int64_t shared_rows() {
    return std::max<std::int64_t>(1, GetParam().inputs.block[0]);
  }
  static std::int64_t inputs_group() {
    const QScheme& scheme = GetParam().inputs;
    const std::int64_t size = std::max(scheme.group_size, scheme.block[1]);
    return size > 0 ? std::min(size, kFeatures) : kFeatures;
  }
  // The grid of a value's own row, group or block.
  static Grid grid_at(const Tensor& x, std::int64_t row, std::int64_t feature) {
    const std::int64_t rows = shared_rows(), columns = inputs_group();
    const std::int64_t first = row / rows * rows;
    std::vector<float> own;
    for (std::int64_t r = first; r < std::min(kRows, first + rows); ++r) {
      const float* values = x.data<float>() + r * kFeatures + feature / columns * columns;
      own.insert(own.end(), values, values + columns);
    }
    return grid_of(own, GetParam().inputs);
  }

  Rng rng_;
  Linear source_;
  std::unique_ptr<QatLinear> layer_;
};

TEST_P(DynamicActivations, AreMultipliedAsIntegersOfTheirOwnScales) {
  const QScheme& inputs = GetParam().inputs;
  const Tensor x = rows_of_values();
  ForwardContext training{.training = true};
  const Tensor y = layer_->forward(Variable(x), training).value();
  ASSERT_EQ(y.shape(), (Shape{2, kRows / 2, kOutputs}));
  const auto scales = layer_->weight_quantizer()->host_scale();
  const auto zeros = layer_->weight_quantizer()->host_zero_point();
  const auto share = kFeatures * kOutputs / static_cast<std::int64_t>(scales.size());
  const std::int64_t group = inputs_group();
  const std::int64_t step = std::min(group, std::min(share, kFeatures));
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      float expected = 0;
      for (std::int64_t begin = 0; begin < kFeatures; begin += step) {
        const Grid grid = grid_at(x, r, begin);
        const auto of = static_cast<std::size_t>((o * kFeatures + begin) / share);
        std::int64_t sum = 0;
        for (std::int64_t k = begin; k < begin + step; ++k) {
          const auto q = static_cast<std::int64_t>(
              code_of(x.data<float>()[r * kFeatures + k], grid, inputs) - grid.zero_point);
          const auto w = static_cast<std::int64_t>(
              code_of(source_.weight().value().data<float>()[o * kFeatures + k],
                      {scales[of], zeros[of]}, GetParam().weights) -
              zeros[of]);
          sum += q * w;
        }
        const float scale = grid.scale * scales[of];
        const float term = static_cast<float>(sum) * scale;
        expected = expected + term;
      }
      expected = expected + source_.bias().value().data<float>()[o];
      ASSERT_EQ(y.data<float>()[r * kOutputs + o], expected) << "row " << r << ", output " << o;
    }
  }
}

// A row is quantized alike whatever stands beside it, in training and in evaluation.
TEST_P(DynamicActivations, DependOnTheirOwnRowAlone) {
  if (shared_rows() > 1) return;  // of blocks that is no promise
  const Tensor x = rows_of_values();
  ForwardContext training{.training = true}, evaluation;
  const Tensor all = layer_->forward(Variable(x), training).value();
  EXPECT_TRUE(testing::all_close(layer_->forward(Variable(x), evaluation).value(), all, 0, 0));
  for (std::int64_t r = 0; r < kRows; ++r) {
    const Tensor row = Tensor::empty({1, kFeatures});
    std::copy_n(x.data<float>() + r * kFeatures, kFeatures, row.data<float>());
    const Tensor y = layer_->forward(Variable(row), evaluation).value();
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      EXPECT_EQ(y.data<float>()[o], all.data<float>()[r * kOutputs + o]) << r << " " << o;
    }
  }
}

TEST_P(DynamicActivations, PassGradientsStraightThrough) {
  Variable x(rows_of_values(), true);
  ForwardContext training{.training = true}, evaluation;
  const Variable y = layer_->forward(x, training);
  const Tensor grad = random_tensor(y.shape(), 11, DType::kF32);
  y.backward(grad);
  const Tensor w = layer_->weight_quantizer()->forward(layer_->weight(), evaluation).value();
  const Tensor codes = quantize_dynamically(Variable(x.value()), GetParam().inputs, kFeatures,
                                            Tensor::zeros({1}, DType::kI64))
                           .value();
  std::int64_t clipped = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kFeatures; ++k) {
      double sum = 0;
      for (std::int64_t o = 0; o < kOutputs; ++o) {
        sum += double{grad.data<float>()[r * kOutputs + o]} * w.data<float>()[o * kFeatures + k];
      }
      // Rounding the zero point may leave an end of the range out of the codes.
      const float g = x.grad().data<float>()[r * kFeatures + k];
      clipped += g == 0 ? 1 : 0;
      EXPECT_NEAR(g, g == 0 ? 0 : sum, 1e-5) << r << " " << k;
    }
  }
  EXPECT_LE(clipped, kRows * kFeatures / inputs_group());
  for (std::int64_t o = 0; o < kOutputs; ++o) {
    for (std::int64_t k = 0; k < kFeatures; ++k) {
      double sum = 0;
      for (std::int64_t r = 0; r < kRows; ++r) {
        sum +=
            double{grad.data<float>()[r * kOutputs + o]} * codes.data<float>()[r * kFeatures + k];
      }
      EXPECT_NEAR(layer_->weight().grad().data<float>()[o * kFeatures + k], sum, 2e-4);
    }
  }
  for (std::int64_t o = 0; o < kOutputs; ++o) {
    double sum = 0;
    for (std::int64_t r = 0; r < kRows; ++r) sum += grad.data<float>()[r * kOutputs + o];
    EXPECT_NEAR(layer_->bias().grad().data<float>()[o], sum, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DynamicActivations, ::testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

QConfig token_config() {
  QConfig config;
  config.weights = QuantizerConfig{weights_scheme(Granularity::kChannel), {.type = "min_max"}};
  config.activations = QuantizerConfig{rows_scheme(0, false), {.type = "min_max"}};
  return config;
}

// Each sample that a convolution reads has a scale of its own.
TEST(DynamicQuantize, ConvolutionsHaveAScaleForEachSample) {
  constexpr std::int64_t kSide = 5, kIn = 4, kOut = 6, kGroups = 2, kSamples = 3;
  Rng rng(4);
  Conv2dOptions options{.in_channels = kIn, .out_channels = kOut, .kernel_size = {3, 3}};
  options.padding = {1, 1};
  options.groups = kGroups;
  const Conv2d source(options, rng);
  QConfig config = token_config();
  config.weights->scheme = weights_scheme(Granularity::kChannel, 0, false);
  QatConv2d layer(options, source.weight().value().clone(), source.bias().value().clone(), config,
                  kernels::Activation::kNone);
  const Tensor values = random_tensor({kSamples, kSide, kSide, kIn}, 6, DType::kF32);
  constexpr std::int64_t kSize = kSide * kSide * kIn;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values.data<float>()[i] = values.data<float>()[i] * static_cast<float>(1 + 9 * (i / kSize)) + 1;
  }
  Variable x(values, true);
  ForwardContext training{.training = true};
  const Variable y = layer.forward(x, training);
  const auto scales = layer.weight_quantizer()->host_scale();
  const auto zeros = layer.weight_quantizer()->host_zero_point();
  const Tensor weight = layer.weight_quantizer()->forward(layer.weight(), training).value();
  const QScheme& inputs = config.activations->scheme;
  const Tensor real = Tensor::empty(values.shape());
  for (std::int64_t i = 0; i < y.value().size(); ++i) {
    const std::int64_t o = i % kOut, w = i / kOut % kSide, h = i / kOut / kSide % kSide;
    const std::int64_t n = i / kOut / kSide / kSide, group = o / (kOut / kGroups);
    const float* sample = values.data<float>() + n * kSize;
    const Grid grid = grid_of({sample, sample + kSize}, inputs);
    const auto of = static_cast<std::size_t>(o);
    std::int64_t sum = 0;
    for (std::int64_t c = 0; c < kIn / kGroups; ++c) {
      for (std::int64_t t = 0; t < 9; ++t) {
        const std::int64_t row = h + t / 3 - 1, column = w + t % 3 - 1;
        if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
        const float value = sample[(row * kSide + column) * kIn + group * (kIn / kGroups) + c];
        const float w_value = layer.weight().value().data<float>()[(o * 2 + c) * 9 + t];
        sum += static_cast<std::int64_t>(
            (code_of(value, grid, inputs) - grid.zero_point) *
            (code_of(w_value, {scales[of], zeros[of]}, config.weights->scheme) - zeros[of]));
      }
    }
    const float scaled = static_cast<float>(sum) * (grid.scale * scales[of]);
    ASSERT_EQ(y.value().data<float>()[i], scaled + source.bias().value().data<float>()[o]) << i;
  }
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const float* sample = values.data<float>() + i / kSize * kSize;
    const Grid grid = grid_of({sample, sample + kSize}, inputs);
    real.data<float>()[i] = static_cast<float>(
        (code_of(values.data<float>()[i], grid, inputs) - grid.zero_point) * double{grid.scale});
  }
  // The gradients of the float convolution of what the codes stand for.
  Variable real_x(real, true), real_w(weight, true), bias(source.bias().value().clone(), true);
  const Tensor grad = random_tensor(y.shape(), 9, DType::kF32);
  conv2d(real_x, real_w, bias, {{1, 1}, {1, 1}, {1, 1}, kGroups}).backward(grad);
  y.backward(grad);
  EXPECT_TRUE(testing::all_close(layer.weight().grad(), real_w.grad(), 1e-3, 1e-4));
  EXPECT_TRUE(testing::all_close(layer.bias().grad(), bias.grad(), 1e-5, 1e-5));
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const float g = x.grad().data<float>()[i];
    if (g == 0) continue;  // clipped
    EXPECT_NEAR(g, real_x.grad().data<float>()[i], 1e-4) << i;
  }
}

TEST(DynamicQuantize, CountsWhatIsNotFinite) {
  Rng rng(3);
  const Linear source(LinearOptions{4, 2}, rng);
  QatLinear layer(source, token_config());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  ForwardContext training{.training = true};
  layer.forward(Variable(Tensor::from({nan, 1.0F, -inf, 2.0F}, {1, 4})), training);
  EXPECT_EQ(layer.weight_quantizer()->take_faults().non_finite, 2);
}

TEST(DynamicQuantize, PlansSayWhoQuantizes) {
  Rng rng(3);
  const auto net = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"fc1", std::make_shared<Linear>(LinearOptions{8, 4}, rng)},
                                {"fc2", std::make_shared<Linear>(LinearOptions{4, 2}, rng)}});
  QuantizeConfig config;
  config.groups = {{{"Linear"}, token_config()}};
  const PreparedModel prepared = prepare(net, config);
  const std::string text = to_string(prepared.plan);
  EXPECT_NE(text.find("uint8 affine, per token, dynamic"), std::string::npos) << text;
  EXPECT_NE(text.find("dynamic: the next layer quantizes it"), std::string::npos) << text;
  EXPECT_NE(text.find("added to the scaled sums"), std::string::npos) << text;
  for (const NamedQuantizer& entry : named_quantizers(*prepared.model)) {
    EXPECT_TRUE(entry.name.ends_with("weight_quantizer")) << entry.name;
  }
}

// The limit holds for the model's input as for another layer's output; sums of groups are shorter.
TEST(DynamicQuantize, RowsWhoseSumsInt32CannotHoldAreErrors) {
  const auto prepared = [](std::int64_t features, const QConfig& quantized) {
    Rng rng(3);
    const auto net = std::make_shared<Sequential>(Sequential::NamedChildren{
        {"fc", std::make_shared<Linear>(LinearOptions{features, 1}, rng)}});
    prepare(net, {.groups = {{.targets = {"Linear"}, .config = quantized}}, .ignore = {}});
  };
  QConfig config = token_config();
  config.weights->scheme.bits = 8;
  EXPECT_NO_THROW(prepared(66311, config));
  EXPECT_EQ(message_of<InputError>([&] { prepared(66312, config); }),
            "quantize.groups.0.targets: fc: expected at most 66311 products per output, so that "
            "their sum fits int32 (weights of 8 bits, inputs of 8), got 66312");
  config.activations->scheme = rows_scheme(10, false);
  EXPECT_NO_THROW(prepared(70000, config));
  config.activations->scheme = blocks_scheme(2, 10, false);
  EXPECT_NO_THROW(prepared(70000, config));
}

TEST(DynamicQuantize, SayWhatHasNoSuchForm) {
  Rng rng(3);
  const auto message = [&](std::shared_ptr<Module> layer, const QConfig& quantized) {
    QuantizeConfig config;
    config.groups = {{{layer->type_name()}, quantized}};
    return message_of<InputError>([&] {
      prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"a", layer}}), config);
    });
  };
  const auto linear = [&] { return std::make_shared<Linear>(LinearOptions{12, 2}, rng); };
  Conv2dOptions options;
  options.in_channels = options.out_channels = 2;
  QConfig groups = token_config();
  groups.activations->scheme = rows_scheme(5, false);
  EXPECT_EQ(message(std::make_shared<Conv2d>(options, rng), groups),
            "quantize.groups.0.targets: a: expected a Linear for dynamic activations in groups, "
            "got Conv2d, which takes the strategy token");
  EXPECT_EQ(message(linear(), groups),
            "quantize.groups.0.targets: a: groups of 5 do not divide the 12 features of its input");
  groups.activations->scheme = rows_scheme(6, false);
  groups.weights->scheme = weights_scheme(Granularity::kGroup, 4);
  EXPECT_EQ(message(linear(), groups),
            "quantize.groups.0.targets: a: expected the same group_size for weights and "
            "activations, got 4 and 6");
  groups.activations->scheme = blocks_scheme(2, 5, false);
  EXPECT_EQ(message(linear(), groups),
            "quantize.groups.0.targets: a: blocks of 5 do not divide the 12 features of its input");
  groups.activations->scheme = blocks_scheme(2, 6, false);
  EXPECT_EQ(message(linear(), groups),
            "quantize.groups.0.targets: a: expected blocks of as many columns as a group has "
            "weights, got 6 and 4");
  groups.activations->scheme.dynamic = false;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(groups); }),
            "[qscheme] scales per token or block need dynamic: true");
  groups.activations->scheme = blocks_scheme(2, 0, false);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(groups); }),
            "[qscheme] expected rows and columns above 0 with blocks, 0 elsewhere");
  QConfig alone = token_config();
  alone.weights.reset();
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(alone); }),
            "dynamic activations are operands of integer products: expected weights too");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              QConfig t = token_config();
              validate(t, Profile::kTensorrt);
            }),
            "the profile tensorrt has no dynamic activations");
}

}  // namespace
}  // namespace steelyard::qat::dynamic_quantize_test
