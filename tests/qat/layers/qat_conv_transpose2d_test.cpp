// Quantized transposed convolutions: the integers against a loop over the input's pixels, the
// gradients against the straight-through estimator of the float operation.
#include "steelyard/qat/layers/qat_conv_transpose2d.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/train/trainer.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/layers/conv_transpose2d_product.h"
#include "steelyard/qat/model/oscillations.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::Activation;
using testing::all_close;
using testing::random_tensor;

struct TransposeCase {
  const char* name;
  ConvTranspose2dOptions conv;
  Activation activation = Activation::kNone;
  int bits = 8;
  bool per_channel = true;
  bool affine_weights = false;
  int input_bits = 8;
};
void PrintTo(const TransposeCase& c, std::ostream* out) { *out << c.name; }

const TransposeCase kTransposeCases[] = {
    {"doubles", {.in_channels = 3, .out_channels = 5, .kernel_size = {2, 2}, .stride = {2, 2}}},
    {"plain", {.in_channels = 3, .out_channels = 4, .kernel_size = {3, 2}}, Activation::kRelu},
    {"overlaps",
     {.in_channels = 2,
      .out_channels = 3,
      .kernel_size = {3, 3},
      .stride = {2, 2},
      .padding = {1, 1},
      .output_padding = {1, 1}},
     Activation::kRelu6},
    {"gaps", {.in_channels = 2, .out_channels = 3, .kernel_size = {2, 1}, .stride = {3, 2}}},
    {"reaches_beyond",
     {.in_channels = 2,
      .out_channels = 3,
      .kernel_size = {1, 2},
      .stride = {3, 4},
      .output_padding = {2, 3},
      .bias = false}},
    {"dilated",
     {.in_channels = 3,
      .out_channels = 2,
      .kernel_size = {3, 2},
      .stride = {2, 1},
      .padding = {2, 0},
      .dilation = {3, 2}},
     Activation::kRelu,
     4},
    {"dilated_by_its_stride",
     {.in_channels = 3,
      .out_channels = 2,
      .kernel_size = {3, 3},
      .stride = {2, 2},
      .dilation = {2, 4}}},
    {"cropped",
     {.in_channels = 2,
      .out_channels = 2,
      .kernel_size = {4, 4},
      .stride = {2, 2},
      .padding = {3, 3}}},
    {"groups",
     {.in_channels = 4,
      .out_channels = 6,
      .kernel_size = {3, 2},
      .stride = {2, 2},
      .padding = {1, 0},
      .groups = 2},
     Activation::kRelu},
    {"depthwise",
     {.in_channels = 5,
      .out_channels = 5,
      .kernel_size = {4, 4},
      .stride = {2, 2},
      .padding = {1, 1},
      .groups = 5}},
    {"one_scale",
     {.in_channels = 3, .out_channels = 4, .kernel_size = {3, 3}, .stride = {2, 2}},
     Activation::kNone,
     8,
     false},
    {"affine",
     {.in_channels = 4,
      .out_channels = 6,
      .kernel_size = {3, 3},
      .stride = {2, 2},
      .padding = {1, 1},
      .groups = 2},
     Activation::kRelu,
     4,
     true,
     true},
    {"wide",
     {.in_channels = 3,
      .out_channels = 4,
      .kernel_size = {3, 3},
      .stride = {2, 2},
      .padding = {1, 0}},
     Activation::kNone,
     8,
     true,
     false,
     16},
};

QConfig config_of(const TransposeCase& c) {
  QConfig config = default_w8a8();
  config.weights->scheme.bits = c.bits;
  config.weights->scheme.granularity =
      c.per_channel ? kernels::Granularity::kChannel : kernels::Granularity::kTensor;
  config.weights->scheme.symmetric = config.weights->scheme.narrow_range = !c.affine_weights;
  config.activations->scheme.bits = c.input_bits;
  return config;
}

struct Fixture {
  explicit Fixture(const TransposeCase& c)
      : options(c.conv),
        config(config_of(c)),
        rng(3),
        source(options, rng),
        layer(options, parameter("weight"), options.bias ? parameter("bias") : Tensor(), config,
              c.activation),
        input_quantizer(*config.activations),
        x(random_tensor({2, 5, 4, options.in_channels}, 5, DType::kF32), true) {
    for (float& v : x.value().span<float>()) v = 3 * v + 1;
  }

  Tensor parameter(const std::string& name) const {
    for (const NamedParameter& p : source.named_parameters()) {
      if (p.name == name) return p.variable.value();
    }
    return {};
  }
  Variable run(bool training) {
    ForwardContext context{.training = training};
    return layer.forward(input_quantizer.forward(x, context), context);
  }
  // What the layer computes, as float operations on fake-quantized operands `w` and `b`.
  Variable reference(const Variable& w, const Variable& b) {
    ForwardContext evaluation;
    const auto product = conv_transpose2d_product(options.geometry());
    const Variable rounded =
        layer.weight_quantizer()->forward(product->by_output_channel(w), evaluation);
    return apply_activation(
        conv_transpose2d(input_quantizer.forward(x, evaluation),
                         product->by_output_channel(rounded), b, options.geometry()),
        layer.activation());
  }

  ConvTranspose2dOptions options;
  QConfig config;
  Rng rng;
  ConvTranspose2d source;
  QatConvTranspose2d layer;
  ActivationQuantizer input_quantizer;
  Variable x;
};

class QuantizedConvTranspose : public ::testing::TestWithParam<TransposeCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, QuantizedConvTranspose, ::testing::ValuesIn(kTransposeCases),
                         [](const auto& p) { return std::string(p.param.name); });

// Each pixel of the input is added to those of the output, in integers.
TEST_P(QuantizedConvTranspose, CodesEqualAScalarLoop) {
  Fixture f(GetParam());
  const Variable y = f.run(/*training=*/true);
  ForwardContext evaluation;
  const auto x = quantized(f.input_quantizer.forward(f.x, evaluation));
  const auto out = quantized(y);
  ASSERT_TRUE(x && out);
  const ConvTranspose2dOptions& o = f.options;
  const std::int64_t in_group = o.in_channels / o.groups, out_group = o.out_channels / o.groups;
  const auto [kh, kw] = o.kernel_size;
  const Shape in = x->codes.shape(), to = out->codes.shape();
  const auto scales = f.layer.weight_quantizer()->host_scale();
  const auto zero_points = f.layer.weight_quantizer()->host_zero_point();
  const auto range = f.layer.weight_quantizer()->code_range();
  const auto w = f.layer.weight().value().span<float>();
  const auto xq = testing::values(x->codes);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(out->codes.size()), 0);
  for (std::int64_t i = 0; i < x->codes.size(); ++i) {
    const std::int64_t c = i % in[3], col = i / in[3] % in[2], row = i / in[3] / in[2] % in[1];
    const std::int64_t image = i / in[3] / in[2] / in[1];
    const auto q =
        static_cast<std::int64_t>(xq[static_cast<std::size_t>(i)]) - x->host_zero_point();
    for (std::int64_t k = 0; k < out_group * kh * kw; ++k) {
      const std::int64_t channel = c / in_group * out_group + k / (kh * kw);
      const std::int64_t h = row * o.stride[0] - o.padding[0] + k / kw % kh * o.dilation[0];
      const std::int64_t v = col * o.stride[1] - o.padding[1] + k % kw * o.dilation[1];
      if (h < 0 || h >= to[1] || v < 0 || v >= to[2]) continue;
      const std::size_t own = scales.size() > 1 ? static_cast<std::size_t>(channel) : 0;
      const float real = w[static_cast<std::size_t>(c * out_group * kh * kw + k)];
      const double code = std::clamp<double>(std::nearbyint(real / scales[own]) + zero_points[own],
                                             range.qmin, range.qmax);
      sums[static_cast<std::size_t>(((image * to[1] + h) * to[2] + v) * to[3] + channel)] +=
          q * (static_cast<std::int64_t>(code) - zero_points[own]);
    }
  }
  const auto codes = testing::values(out->codes);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto channel = static_cast<std::int64_t>(i) % to[3];
    const float product_scale =
        x->host_scale() * scales[scales.size() > 1 ? static_cast<std::size_t>(channel) : 0];
    std::int64_t acc = sums[i];
    if (f.layer.bias().defined()) {
      acc += static_cast<std::int64_t>(std::nearbyint(
          f.layer.bias().value().span<float>()[static_cast<std::size_t>(channel)] / product_scale));
    }
    const float scale = out->host_scale();
    float steps = x->wide() ? static_cast<float>(acc) * product_scale / scale
                            : static_cast<float>(acc) * (product_scale / scale);
    if (GetParam().activation != Activation::kNone) steps = std::max(steps, 0.0F);
    if (GetParam().activation == Activation::kRelu6) {
      steps = std::min(steps, std::nearbyint(6 / scale));
    }
    const double code = std::clamp<double>(std::nearbyint(steps) + out->host_zero_point(),
                                           out->range.qmin, out->range.qmax);
    ASSERT_EQ(codes[i], code) << i;
  }
}

TEST_P(QuantizedConvTranspose, GradientsAreStraightThrough) {
  Fixture f(GetParam());
  const Variable y = f.run(true);
  const Tensor grad = random_tensor(y.shape(), 11, DType::kF32);
  y.backward(grad);
  const Tensor grad_x = f.x.grad().clone();
  f.x.clear_grad();
  const Variable w(f.layer.weight().value().clone(), true);
  const Variable b = f.options.bias ? Variable(f.layer.bias().value().clone(), true) : Variable();
  ForwardContext evaluation;
  f.layer.output_quantizer()->forward(f.reference(w, b), evaluation).backward(grad);
  EXPECT_TRUE(all_close(f.layer.weight().grad(), w.grad(), 1e-3, 2e-3));
  EXPECT_TRUE(all_close(grad_x, f.x.grad(), 1e-3, 2e-3));
  if (b.defined()) {
    EXPECT_TRUE(all_close(f.layer.bias().grad(), b.grad(), 1e-3, 2e-3));
  }
}

// Weights in groups of three: sums of groups, each with its scales, and a float output.
TEST_P(QuantizedConvTranspose, GroupsOfWeightsAreScaledOneByOne) {
  TransposeCase grouped = GetParam();
  Fixture f(grouped);
  f.config.weights->scheme.granularity = kernels::Granularity::kGroup;
  f.config.weights->scheme.group_size = f.options.kernel_size[1];
  const Tensor bias = f.options.bias ? f.parameter("bias") : Tensor();
  QatConvTranspose2d layer(f.options, f.parameter("weight"), bias, f.config, Activation::kNone);
  layer.output_quantizer()->set_quantizing(false);
  ForwardContext training{.training = true};
  const Variable y = layer.forward(f.input_quantizer.forward(f.x, training), training);
  const auto product = conv_transpose2d_product(f.options.geometry());
  ForwardContext evaluation;
  const Variable w =
      layer.weight_quantizer()->forward(product->by_output_channel(layer.weight()), evaluation);
  const Variable expected =
      conv_transpose2d(f.input_quantizer.forward(f.x, evaluation), product->by_output_channel(w),
                       layer.bias(), f.options.geometry());
  EXPECT_TRUE(all_close(y.value(), expected.value(), 1e-5, 1e-4));
}

QuantizeConfig all_quantized(BatchNormFold fold) {
  return {.groups = {{.targets = {"ConvTranspose2d"}, .config = default_w8a8()}},
          .ignore = {},
          .bn_fold = fold};
}

const ConvTranspose2dOptions kGrouped{
    .in_channels = 4, .out_channels = 6, .kernel_size = {3, 2}, .stride = {2, 1}, .groups = 2};

// A norm is folded by output channel, and the parameter keeps PyTorch's layout.
TEST(QuantizedConvTranspose2d, TakesItsBatchNormAlong) {
  for (const BatchNormFold fold : {BatchNormFold::kFrozen, BatchNormFold::kBatchCorrected,
                                   BatchNormFold::kOneConvolution, BatchNormFold::kNone}) {
    const auto network = [] {
      Rng rng(7);
      const auto norm = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 6});
      norm->weight().value().copy_from(random_tensor({6}, 4, DType::kF32));
      norm->bias().value().copy_from(random_tensor({6}, 5, DType::kF32));
      norm->running_mean().copy_from(random_tensor({6}, 6, DType::kF32));
      return std::make_shared<Sequential>(
          Sequential::NamedChildren{{"up", std::make_shared<ConvTranspose2d>(kGrouped, rng)},
                                    {"norm", norm},
                                    {"relu", std::make_shared<ReLU>()}});
    };
    const auto source = network();
    const PreparedModel prepared = prepare(network(), all_quantized(fold));
    for (const NamedParameter& p : prepared.model->named_parameters()) {
      if (p.name == "up.weight") {
        EXPECT_EQ(p.variable.shape(), (Shape{4, 3, 3, 2}));
      }
    }
    for (const auto& q : named_quantizers(*prepared.model)) q.quantizer->set_quantizing(false);
    ForwardContext evaluation;
    const Variable x(random_tensor({2, 5, 4, 4}, 1, DType::kF32));
    EXPECT_TRUE(all_close(prepared.model->forward(x, evaluation).value(),
                          source->forward(x, evaluation).value(), 1e-5, 1e-5))
        << static_cast<int>(fold);
  }
}

// The damping term pulls each weight of the parameter to the value of its own code.
TEST(QuantizedConvTranspose2d, OscillationsFollowTheParameter) {
  Rng rng(7);
  const auto up = std::make_shared<ConvTranspose2d>(kGrouped, rng);
  const auto model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"up", up}}),
                             all_quantized(BatchNormFold::kFrozen))
                         .model;
  OscillationCallback callback(*model,
                               {.damping = CosineSchedule{0.5, 0.5}, .freeze_threshold = {}});
  callback.on_step_begin(0, 10);
  ForwardContext training{.training = true};
  const Variable y =
      model->forward(Variable(random_tensor({2, 5, 4, 4}, 1, DType::kF32)), training);
  y.backward(random_tensor(y.shape(), 3, DType::kF32));
  QuantizedLayer* layer = nullptr;
  for (const NamedModule& entry : model->named_modules()) {
    if (auto* found = dynamic_cast<QuantizedLayer*>(entry.module)) layer = found;
  }
  const Tensor before = layer->weight().grad().clone();
  callback.on_gradients();
  const auto scales = layer->weight_quantizer()->host_scale();
  const Tensor& w = layer->weight().value();
  for (std::int64_t i = 0; i < w.size(); ++i) {
    const std::int64_t in = i / 18, of_group = i / 6 % 3;
    const double s = scales[static_cast<std::size_t>(in / 2 * 3 + of_group)];
    const double value = w.data<float>()[i];
    const double rounded = std::nearbyint(static_cast<float>(value) / static_cast<float>(s)) * s;
    EXPECT_NEAR(layer->weight().grad().data<float>()[i],
                before.data<float>()[i] + 2 * 0.5 * (value - rounded), 1e-6)
        << i;
  }
}

}  // namespace
}  // namespace steelyard::qat
