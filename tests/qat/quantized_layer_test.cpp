// Quantized layers: the integers against a loop written here, the gradients against the
// straight-through estimator of the float graph, the whole against the float reference.
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::Activation;
using testing::all_close;
using testing::random_tensor;

struct LayerCase {
  const char* name;
  Conv2dOptions conv;
  Activation activation = Activation::kNone;
  int bits = 8;
  bool signed_activations = false;
  bool per_channel = true;
  bool affine_weights = false;
};

void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

Conv2dOptions conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                   std::int64_t padding, std::int64_t groups, bool bias) {
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = out;
  options.kernel_size = {kernel, kernel};
  options.stride = {stride, stride};
  options.padding = {padding, padding};
  options.groups = groups;
  options.bias = bias;
  return options;
}

const LayerCase kLayerCases[] = {
    {"plain", conv(3, 5, 3, 1, 1, 1, true)},
    {"relu", conv(3, 8, 3, 1, 1, 1, true), Activation::kRelu},
    {"relu6", conv(4, 4, 3, 2, 1, 1, true), Activation::kRelu6},
    {"no_bias", conv(2, 3, 1, 1, 0, 1, false), Activation::kRelu},
    {"groups", conv(4, 8, 3, 1, 1, 2, true), Activation::kRelu},
    {"depthwise", conv(6, 6, 3, 2, 1, 6, true)},
    {"one_scale", conv(3, 5, 3, 1, 1, 1, true), Activation::kNone, 8, false, false},
    {"signed", conv(3, 5, 3, 1, 1, 1, true), Activation::kRelu, 8, true},
    {"int4", conv(3, 5, 3, 1, 1, 1, true), Activation::kRelu, 4},
    {"int2", conv(3, 5, 3, 1, 1, 1, true), Activation::kNone, 2, true},
    {"affine", conv(3, 5, 3, 1, 1, 1, true), Activation::kRelu, 8, false, true, true},
    {"affine_groups", conv(4, 8, 3, 2, 1, 2, true), Activation::kRelu6, 4, true, true, true},
    {"affine_depthwise", conv(6, 6, 3, 1, 1, 6, false), Activation::kNone, 8, false, true, true},
    {"affine_one_scale", conv(3, 5, 3, 1, 0, 1, true), Activation::kNone, 2, false, false, true},
};

QConfig config_of(const LayerCase& c) {
  QConfig config = default_w8a8();
  config.weights->scheme.bits = c.bits;
  config.weights->scheme.granularity =
      c.per_channel ? kernels::Granularity::kChannel : kernels::Granularity::kTensor;
  config.weights->scheme.symmetric = !c.affine_weights;
  config.weights->scheme.narrow_range = !c.affine_weights;
  config.activations->scheme.bits = c.bits;
  config.activations->scheme.is_signed = c.signed_activations;
  config.activations->scheme.symmetric = c.signed_activations;
  return config;
}

// A layer, its float twin's parts, and an input with codes.
struct LayerFixture {
  explicit LayerFixture(const LayerCase& c)
      : options(c.conv),
        config(config_of(c)),
        rng(3),
        source(options, rng),
        layer(source, config, c.activation),
        input_quantizer(*config.activations),
        x(random_tensor({2, 6, 5, options.in_channels}, 5, DType::kF32), true) {
    for (float& v : x.value().span<float>()) v = 3 * v + 1;
    if (!c.affine_weights) return;
    // Weights of one sign have their zero point at an end.
    const auto weight = layer.weight().value().span<float>();
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] += i % 5 == 0 ? 0.3F : 0.05F;
    for (std::size_t i = 0; i < weight.size() / 5; ++i) weight[i] = std::abs(weight[i]) + 0.01F;
  }

  Variable run(bool training) {
    ForwardContext context{.training = training};
    return layer.forward(input_quantizer.forward(x, context), context);
  }

  Conv2dOptions options;
  QConfig config;
  Rng rng;
  Conv2d source;
  QatConv2d layer;
  ActivationQuantizer input_quantizer;
  Variable x;
};

// Reads [n, h, w, c] or zero outside.
double pixel(const Tensor& t, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c,
             double zero) {
  if (h < 0 || w < 0 || h >= t.dim(1) || w >= t.dim(2)) return zero;
  return testing::values(
      t)[static_cast<std::size_t>(((n * t.dim(1) + h) * t.dim(2) + w) * t.dim(3) + c)];
}

class QuantizedConv : public ::testing::TestWithParam<LayerCase> {};

TEST_P(QuantizedConv, CodesEqualAScalarLoop) {
  LayerFixture f(GetParam());
  const Variable y = f.run(/*training=*/true);
  ForwardContext evaluation;
  const auto x = quantized(f.input_quantizer.forward(f.x, evaluation));
  const auto out = quantized(y);
  ASSERT_TRUE(x && out);
  const std::vector<double> xq = testing::values(x->codes);
  const auto weights = f.layer.weight().value().span<float>();
  const auto scales = f.layer.weight_quantizer()->host_scale();
  const auto zero_points = f.layer.weight_quantizer()->host_zero_point();
  const auto range = f.layer.weight_quantizer()->code_range();
  const auto codes = testing::values(out->codes);
  const Conv2dOptions& o = f.options;
  const std::int64_t per_group = o.in_channels / o.groups;
  const std::int64_t out_per_group = o.out_channels / o.groups;
  const Tensor& oc = out->codes;
  std::size_t at = 0;
  for (std::int64_t n = 0; n < oc.dim(0); ++n) {
    for (std::int64_t h = 0; h < oc.dim(1); ++h) {
      for (std::int64_t w = 0; w < oc.dim(2); ++w) {
        for (std::int64_t k = 0; k < oc.dim(3); ++k, ++at) {
          const std::size_t own = scales.size() > 1 ? static_cast<std::size_t>(k) : 0;
          const float sw = scales[own];
          const std::int32_t zw = zero_points[own];
          std::int64_t acc = 0;
          for (std::int64_t c = 0; c < per_group; ++c) {
            for (std::int64_t i = 0; i < o.kernel_size[0]; ++i) {
              for (std::int64_t j = 0; j < o.kernel_size[1]; ++j) {
                const double q = pixel(x->codes, n, h * o.stride[0] - o.padding[0] + i,
                                       w * o.stride[1] - o.padding[1] + j,
                                       k / out_per_group * per_group + c, x->host_zero_point());
                const float weight = weights[static_cast<std::size_t>(
                    ((k * per_group + c) * o.kernel_size[0] + i) * o.kernel_size[1] + j)];
                const double wq =
                    std::clamp<double>(std::nearbyint(weight / sw) + zw, range.qmin, range.qmax) -
                    zw;
                acc += static_cast<std::int64_t>((q - x->host_zero_point()) * wq);
              }
            }
          }
          const float product_scale = x->host_scale() * sw;
          if (f.layer.bias().defined()) {
            acc += static_cast<std::int64_t>(std::nearbyint(
                f.layer.bias().value().span<float>()[static_cast<std::size_t>(k)] / product_scale));
          }
          const float multiplier = product_scale / out->host_scale();
          double code =
              std::nearbyint(static_cast<float>(acc) * multiplier) + out->host_zero_point();
          code = std::clamp<double>(code, out->range.qmin, out->range.qmax);
          const float real = static_cast<float>(acc) * product_scale;
          if (GetParam().activation != Activation::kNone && acc <= 0) {
            code = std::clamp<double>(out->host_zero_point(), out->range.qmin, out->range.qmax);
          }
          if (GetParam().activation == Activation::kRelu6 && real >= 6) {
            code = std::min<double>(
                std::nearbyint(6.0F / out->host_scale()) + out->host_zero_point(), out->range.qmax);
          }
          ASSERT_EQ(codes[at], code) << n << " " << h << " " << w << " " << k;
        }
      }
    }
  }
}

// The range of each scale's weights, extended to hold 0, from one end of the codes to the other.
TEST_P(QuantizedConv, WeightScalesAreTheDefinitions) {
  LayerFixture f(GetParam());
  f.run(/*training=*/true);
  const auto weights = f.layer.weight().value().span<float>();
  const auto scales = f.layer.weight_quantizer()->host_scale();
  const auto zero_points = f.layer.weight_quantizer()->host_zero_point();
  const auto range = f.layer.weight_quantizer()->code_range();
  const std::size_t share = weights.size() / scales.size();
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const auto own = weights.subspan(c * share, share);
    const double lo = std::min<double>(0, *std::min_element(own.begin(), own.end()));
    const double hi = std::max<double>(0, *std::max_element(own.begin(), own.end()));
    if (!GetParam().affine_weights) {
      EXPECT_EQ(scales[c], static_cast<float>(std::max(-lo, hi) / range.qmax)) << c;
      EXPECT_EQ(zero_points[c], 0) << c;
      continue;
    }
    const double scale = (hi - lo) / (range.qmax - range.qmin);
    EXPECT_EQ(scales[c], static_cast<float>(scale)) << c;
    EXPECT_EQ(zero_points[c], std::nearbyint(range.qmin - lo / scale)) << c;
  }
}

// The float graph: fake-quantized operands, a float convolution, the activation, the quantizer.
TEST_P(QuantizedConv, GradientsAreStraightThrough) {
  LayerFixture f(GetParam());
  const Variable y = f.run(true);
  const Tensor grad = random_tensor(y.shape(), 11, DType::kF32);
  y.backward(grad);
  const Tensor grad_x = f.x.grad().clone();
  const Tensor grad_w = f.layer.weight().grad().clone();
  const Tensor grad_b = f.layer.bias().defined() ? f.layer.bias().grad().clone() : Tensor();
  y.backward(grad);  // backward does not mutate: everything doubles
  Tensor twice = grad_w.clone();
  for (float& v : twice.span<float>()) v *= 2;
  EXPECT_TRUE(all_close(f.layer.weight().grad(), twice, 1e-6, 1e-6));

  f.x.clear_grad();
  ForwardContext evaluation;
  WeightQuantizer& wq = *f.layer.weight_quantizer();
  const Variable w(f.layer.weight().value().clone(), true);
  const Variable b =
      f.layer.bias().defined() ? Variable(f.layer.bias().value().clone(), true) : Variable();
  const Variable xq = f.input_quantizer.forward(f.x, evaluation);
  const Variable z = apply_activation(
      conv2d(xq, wq.forward(w, evaluation), b, f.options.geometry()), GetParam().activation);
  const Variable reference = f.layer.output_quantizer()->forward(z, evaluation);
  reference.backward(grad);
  EXPECT_TRUE(all_close(f.layer.weight().value(), w.value(), 0, 0));
  EXPECT_TRUE(all_close(grad_w, w.grad(), 1e-3, 2e-3));
  EXPECT_TRUE(all_close(grad_x, f.x.grad(), 1e-3, 2e-3));
  if (b.defined()) {
    EXPECT_TRUE(all_close(grad_b, b.grad(), 1e-3, 2e-3));
  }
}

TEST_P(QuantizedConv, StaysWithinOneStepOfTheFloatReference) {
  LayerFixture f(GetParam());
  const Variable y = f.run(true);
  ForwardContext evaluation;
  const Variable w = f.layer.weight_quantizer()->forward(f.layer.weight(), evaluation);
  const Variable reference = apply_activation(
      conv2d(f.input_quantizer.forward(f.x, evaluation), w, f.layer.bias(), f.options.geometry()),
      GetParam().activation);
  // Half a step of the output, and half a step of the int32 bias, which the float graph lacks.
  double bias_step = 0;
  for (const float s : f.layer.weight_quantizer()->host_scale()) {
    bias_step = std::max<double>(bias_step, s * f.input_quantizer.host_scale()[0]);
  }
  const float step = f.layer.output_quantizer()->host_scale()[0];
  EXPECT_TRUE(all_close(y.value(), reference.value(), 1e-5, 0.51 * (step + bias_step) + 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedConv, ::testing::ValuesIn(kLayerCases),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(QuantizedLinear, EqualsAConvolutionOfOnePixel) {
  Rng rng(1);
  const Linear linear({.in_features = 20, .out_features = 7}, rng);
  const QConfig config = default_w8a8();
  QatLinear a(linear, config, Activation::kRelu);
  QatConv2d b(conv(20, 7, 1, 1, 0, 1, true), linear.weight().value().reshape({7, 20, 1, 1}),
              linear.bias().value(), config, Activation::kRelu);
  ActivationQuantizer input(*config.activations);
  ForwardContext training{.training = true};
  const Tensor values = random_tensor({9, 20}, 2, DType::kF32);
  const Variable x = input.forward(Variable(values, true), training);
  const Variable image = input.forward(Variable(values.reshape({9, 1, 1, 20}), true), training);
  const Variable ya = a.forward(x, training);
  const Variable yb = b.forward(image, training);
  EXPECT_EQ(testing::values(quantized(ya)->codes), testing::values(quantized(yb)->codes));
  ya.backward(Tensor::full(ya.shape(), 1.0));
  yb.backward(Tensor::full(yb.shape(), 1.0));
  EXPECT_TRUE(all_close(a.weight().grad(), b.weight().grad().reshape({7, 20}), 1e-5, 1e-5));
}

TEST(QuantizedLinear, OneSideAloneIsQuantizedInFloat) {
  Rng rng(1);
  const Linear linear({.in_features = 6, .out_features = 4}, rng);
  const Variable x(random_tensor({3, 6}, 2, DType::kF32), true);
  ForwardContext training{.training = true};
  QConfig weights = default_w8a8();
  weights.activations.reset();
  QatLinear a(linear, weights);
  const Variable ya = a.forward(x, training);
  EXPECT_FALSE(quantized(ya));
  const Variable w = a.weight_quantizer()->forward(linear.weight(), training);
  EXPECT_TRUE(all_close(ya.value(), steelyard::linear(x, w, linear.bias()).value(), 1e-5, 1e-6));

  QConfig activations = default_w8a8();
  activations.weights.reset();
  QatLinear b(linear, activations);
  const Variable yb = b.forward(x, training);
  ASSERT_TRUE(quantized(yb));
  const Variable plain = steelyard::linear(x, linear.weight(), linear.bias());
  EXPECT_TRUE(all_close(yb.value(), b.output_quantizer()->forward(plain, training).value(), 0, 0));
}

TEST(QuantizedLinear, FakeQuantOffIsTheFloatLayer) {
  Rng rng(1);
  const Linear linear({.in_features = 6, .out_features = 4}, rng);
  QatLinear layer(linear, default_w8a8());
  for (const auto& q : named_quantizers(layer)) q.quantizer->set_quantizing(false);
  ForwardContext training{.training = true};
  const Variable x(random_tensor({3, 6}, 2, DType::kF32));
  EXPECT_TRUE(all_close(layer.forward(x, training).value(),
                        steelyard::linear(x, linear.weight(), linear.bias()).value(), 0, 0));
}

TEST(QuantizedLayers, EvaluationChangesNoState) {
  LayerFixture f(kLayerCases[1]);
  f.run(true);
  std::vector<Tensor> before;
  for (const auto& buffer : f.layer.named_buffers()) before.push_back(buffer.tensor.clone());
  for (float& v : f.x.value().span<float>()) v *= 10;
  f.run(false);
  const auto after = f.layer.named_buffers();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(testing::values(after[i].tensor), testing::values(before[i])) << after[i].name;
  }
}

// A gradient that somebody else holds is not written over: the same backward pass again gives the
// same gradients.
TEST(QuantizedLayers, BackwardLeavesTheGradientsOfOthers) {
  LayerFixture f(kLayerCases[1]);
  const Variable y = f.run(true);
  const Tensor grad = random_tensor(y.shape(), 9, DType::kF32);
  const Tensor before = grad.clone();
  y.backward(grad);
  const Tensor once = f.x.grad().clone();
  EXPECT_EQ(testing::values(grad), testing::values(before));
  f.x.clear_grad();
  y.backward(grad);
  EXPECT_EQ(testing::values(f.x.grad()), testing::values(once));
}

// Codes and masks are at most 0.35x of what the float step saves. Where scales are learned, the
// int32 sums of every output are kept as well.
TEST(QuantizedLayers, SaveAThirdOfTheFloatActivations) {
  const auto chain = [] {
    Rng rng(1);
    Sequential::Children layers;
    for (int i = 0; i < 4; ++i) {
      layers.push_back(std::make_shared<Conv2d>(conv(16, 16, 3, 1, 1, 1, true), rng));
      layers.push_back(std::make_shared<ReLU>());
    }
    return std::make_shared<Sequential>(layers);
  };
  const auto bytes = [](Module& model) {
    ForwardContext training{.training = true};
    const Variable x(random_tensor({8, 16, 16, 16}, 1, DType::kF32));
    std::vector<Tensor> parameters;
    for (const auto& p : model.named_parameters()) parameters.push_back(p.variable.value());
    return saved_bytes(model.forward(x, training), parameters);
  };
  const auto in_float = chain();
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  const std::int64_t straight_through = bytes(*prepare(chain(), config).model);
  EXPECT_LE(static_cast<double>(straight_through), 0.35 * static_cast<double>(bytes(*in_float)));

  config.groups[0].config.activations->learning = Learning::kScale;
  const std::int64_t elements = 8 * 16 * 16 * 16;
  const std::int64_t sums = 4 * elements * 4;              // layers, elements, bytes
  const std::int64_t input = elements * 4 + elements / 8;  // of the model: f32 and its mask
  EXPECT_EQ(bytes(*prepare(chain(), config).model), straight_through + sums + input);
}

// Backward computes the codes of a parameter again; the mask stays, one bit a weight.
TEST(QuantizedLayers, KeepNoCodesOfAParameter) {
  Rng rng(1);
  const std::int64_t in = 128, out = 256, rows = 2;
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const auto model = prepare(std::make_shared<Sequential>(Sequential::Children{
                                 std::make_shared<Linear>(LinearOptions{in, out}, rng)}),
                             config)
                         .model;
  std::vector<Tensor> parameters;
  for (const auto& p : model->named_parameters()) parameters.push_back(p.variable.value());
  ForwardContext training{.training = true};
  const Variable y = model->forward(Variable(random_tensor({rows, in}, 1, DType::kF32)), training);
  const std::int64_t values = rows * in + rows * out;
  EXPECT_LE(saved_bytes(y, parameters), in * out / 8 + 2 * values);
}

// A layer of a program's own.
class LayerOf : public QuantizedLayer {
 public:
  LayerOf(std::shared_ptr<const Product> product, const Tensor& weight)
      : QuantizedLayer(std::move(product), weight, Tensor(), Activation::kNone, default_w8a8()) {}
  std::string type_name() const override { return "LayerOf"; }
};

TEST(QuantizedLayer, TakesNoParametersOfOtherShapes) {
  Rng rng(3);
  const auto linear = std::make_shared<Linear>(LinearOptions{3, 4}, rng);
  QConfig learned = default_w8a8();
  learned.weights->learning = Learning::kScale;
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, learned});
  const PreparedModel prepared =
      prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config);
  Module& model = *prepared.model;
  const Variable x(random_tensor({2, 3}, 5, DType::kF32));
  model(x, {.training = true});
  const auto with = [&](const std::string& name, const Tensor& value) {
    for (NamedParameter& p : model.named_parameters()) {
      if (p.name != name) continue;
      const Tensor before = p.variable.value();
      p.variable.set_value(value);
      const std::string said =
          testing::message_of<std::invalid_argument>([&] { model(x, {.training = true}); });
      p.variable.set_value(before);
      return said;
    }
    return "no " + name;
  };
  EXPECT_EQ(with("fc.bias", Tensor::zeros({2})),
            "fc: [quantized_layer] expected bias [4], got [2]");
  EXPECT_EQ(with("fc.weight_quantizer.learned_scale", Tensor::zeros({1})),
            "fc: [learned_scale] expected [4], got [1]");
  EXPECT_THAT(testing::message_of<std::logic_error>([&] { (*linear)(x, {}); }),
              ::testing::HasSubstr("[Linear] prepare() has put its quantized form in its place"));
}

TEST(QuantizedLayer, NeedsAProductAndAWeightOfOutputsAndInputs) {
  const auto refusal = [](const std::shared_ptr<const Product>& product, const Tensor& weight) {
    return testing::message_of<std::invalid_argument>([&] { LayerOf(product, weight); });
  };
  EXPECT_EQ(refusal(nullptr, Tensor::zeros({2, 3})),
            "[quantized_layer] expected a product, got null");
  EXPECT_EQ(refusal(linear_product(), Tensor::zeros({3})),
            "[quantized_layer] expected a weight of two dimensions or more, got [3]");
  EXPECT_EQ(
      refusal(linear_product(), Tensor()),
      "[quantized_layer] expected a weight of two dimensions or more, got an undefined tensor");
}

}  // namespace
}  // namespace steelyard::qat
