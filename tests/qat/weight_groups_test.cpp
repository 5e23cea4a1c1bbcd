// Weights with a scale for each group of an output's: values against the definition, in float and
// as integers, gradients, and what has no such form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::message_of;
using testing::random_tensor;

QConfig groups_of(std::int64_t size, int bits = 4) {
  return {.weights =
              QuantizerConfig{
                  {.bits = bits, .granularity = kernels::Granularity::kGroup, .group_size = size},
                  {.type = "min_max"}},
          .activations = {}};
}

// The weights as codes of [-qmax, qmax] with scale max|w| / qmax in each `size` of them.
std::vector<double> rounded(const Tensor& weight, std::int64_t size, int qmax) {
  std::vector<double> values;
  for (std::int64_t begin = 0; begin < weight.size(); begin += size) {
    double largest = 0;
    for (std::int64_t i = begin; i < begin + size; ++i) {
      largest = std::max(largest, std::abs(double{weight.data<float>()[i]}));
    }
    const auto scale = static_cast<float>(largest / qmax);
    for (std::int64_t i = begin; i < begin + size; ++i) {
      const float code = std::nearbyintf(weight.data<float>()[i] / scale);
      values.push_back(double{scale} * std::clamp<float>(code, -qmax, qmax));
    }
  }
  return values;
}

TEST(WeightGroups, LinearMultipliesTheRoundedWeights) {
  Rng rng(3);
  const Linear source(LinearOptions{12, 5}, rng);
  for (const std::int64_t size : {1, 3, 4, 12, 64}) {
    QatLinear layer(source, groups_of(size));
    ForwardContext context{.training = true};
    const Tensor x = random_tensor({7, 12}, 1, DType::kF32);
    const Tensor y = layer.forward(Variable(x), context).value();
    const std::vector<double> w =
        rounded(source.weight().value(), std::min<std::int64_t>(size, 12), 7);
    for (std::int64_t n = 0; n < 7; ++n) {
      for (std::int64_t o = 0; o < 5; ++o) {
        double sum = source.bias().value().data<float>()[o];
        for (std::int64_t i = 0; i < 12; ++i) {
          sum += x.data<float>()[n * 12 + i] * w[static_cast<std::size_t>(o * 12 + i)];
        }
        EXPECT_NEAR(y.data<float>()[n * 5 + o], sum, 1e-5) << "groups of " << size;
      }
    }
  }
}

// Groups follow the layout [O, I, KH, KW] and may end inside a kernel.
TEST(WeightGroups, ConvolutionRoundsRowsOfItsOutputs) {
  Rng rng(3);
  Conv2dOptions options;
  options.in_channels = 4;
  options.out_channels = 3;
  options.kernel_size = {3, 3};
  const Conv2d source(options, rng);
  QatConv2d layer(source, groups_of(6));
  ForwardContext context{.training = true};
  layer.forward(Variable(random_tensor({2, 5, 5, 4}, 1, DType::kF32)), context);
  const FakeQuantize& quantizer = *layer.weight_quantizer();
  ASSERT_EQ(quantizer.host_scale().size(), 18U);
  const WeightCodes codes =
      layer.weight_quantizer()->quantize_weights(layer.weight().value(), nullptr, false, {});
  const Tensor real = make_weight(codes).value();
  const std::vector<double> expected = rounded(source.weight().value(), 6, 7);
  for (std::int64_t i = 0; i < real.size(); ++i) {
    EXPECT_NEAR(real.data<float>()[i], expected[static_cast<std::size_t>(i)], 1e-7);
  }
}

struct GroupsCase {
  const char* name;
  std::int64_t size;
  int bits = 4;
  bool affine = false;
  std::int64_t channel_groups = 1;
  bool bias = true;
  Learning learning = Learning::kNothing;
};
void PrintTo(const GroupsCase& c, std::ostream* out) { *out << c.name; }

class GroupsOfCodes : public ::testing::TestWithParam<GroupsCase> {
 protected:
  static QConfig config() {
    QConfig config = groups_of(GetParam().size, GetParam().bits);
    config.weights->scheme.symmetric = config.weights->scheme.narrow_range = !GetParam().affine;
    config.weights->learning = GetParam().learning;
    config.activations = default_w8a8().activations;
    return config;
  }
  static Conv2dOptions options() {
    Conv2dOptions options;
    options.in_channels = 8;
    options.out_channels = 6;
    options.kernel_size = {3, 3};
    options.stride = {2, 1};
    options.padding = {1, 1};
    options.groups = GetParam().channel_groups;
    options.bias = GetParam().bias;
    return options;
  }
};

// What the groups' sums of q - z, exact, become in float: scaled and added in their order, then the
// bias.
double scaled_sums(const std::vector<std::int64_t>& sums, const float* scales, float x_scale,
                   float bias) {
  float y = 0;
  for (std::size_t g = 0; g < sums.size(); ++g) {
    const float scale = x_scale * scales[g];
    const float term = static_cast<float>(sums[g]) * scale;
    y = y + term;
  }
  return y + bias;
}

TEST_P(GroupsOfCodes, AreSummedAsIntegersAndScaledInOrder) {
  Rng rng(3);
  const Conv2d source(options(), rng);
  QatConv2d layer(source, config());
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext context{.training = true};
  const Tensor images = random_tensor({2, 5, 4, 8}, 1, DType::kF32);
  layer.forward(input.forward(Variable(images), context), context);
  layer.output_quantizer()->set_quantizing(false);
  const Variable x = input.forward(Variable(images), context);
  const Tensor y = layer.forward(x, context).value();
  const auto xq = quantized(x);
  const auto scales = layer.weight_quantizer()->host_scale();
  const auto zeros = layer.weight_quantizer()->host_zero_point();
  const auto range = layer.weight_quantizer()->code_range();
  const std::int64_t channels = 8 / GetParam().channel_groups;
  const std::int64_t groups = static_cast<std::int64_t>(scales.size()) / 6;
  ASSERT_EQ(groups, channels * 9 / GetParam().size);
  ASSERT_EQ(y.shape(), (Shape{2, 3, 4, 6}));
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t o = i % 6, w = i / 6 % 4, h = i / 24 % 3, n = i / 72;
    std::vector<std::int64_t> sums(static_cast<std::size_t>(groups), 0);
    for (std::int64_t k = 0; k < channels * 9; ++k) {
      const std::int64_t c = k / 9, ih = 2 * h - 1 + k % 9 / 3, iw = w - 1 + k % 3;
      if (ih < 0 || iw < 0 || ih >= 5 || iw >= 4) continue;
      const std::int64_t from = o / (6 / GetParam().channel_groups) * channels + c;
      const auto code = xq->codes.data<std::uint8_t>()[((n * 5 + ih) * 4 + iw) * 8 + from];
      const auto of = static_cast<std::size_t>((o * channels * 9 + k) / GetParam().size);
      const float weight = layer.weight().value().data<float>()[o * channels * 9 + k];
      const double q = std::clamp<double>(std::nearbyint(weight / scales[of]) + zeros[of],
                                          range.qmin, range.qmax);
      sums[of % static_cast<std::size_t>(groups)] +=
          (code - xq->host_zero_point()) * (static_cast<std::int64_t>(q) - zeros[of]);
    }
    const float bias = GetParam().bias ? layer.bias().value().data<float>()[o] : 0.0F;
    ASSERT_EQ(y.data<float>()[i],
              scaled_sums(sums, scales.data() + o * groups, xq->host_scale(), bias))
        << i;
  }
}

// The float graph: fake-quantized operands, a float convolution.
TEST_P(GroupsOfCodes, PassGradientsStraightThrough) {
  if (GetParam().learning != Learning::kNothing) return;  // learned_scale_test has their gradients
  Rng rng(3);
  const Conv2d source(options(), rng);
  QatConv2d layer(source, config());
  layer.output_quantizer()->set_quantizing(false);
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext training{.training = true}, evaluation;
  Variable x(random_tensor({2, 5, 4, 8}, 1, DType::kF32), true);
  const Variable y = layer.forward(input.forward(x, training), training);
  const Tensor grad = random_tensor(y.shape(), 11, DType::kF32);
  y.backward(grad);
  const Tensor grad_x = x.grad().clone();
  x.clear_grad();
  const Variable w(layer.weight().value().clone(), true);
  const Variable b =
      layer.bias().defined() ? Variable(layer.bias().value().clone(), true) : Variable();
  const Variable reference =
      conv2d(input.forward(x, evaluation), layer.weight_quantizer()->forward(w, evaluation), b,
             options().geometry());
  reference.backward(grad);
  EXPECT_TRUE(testing::all_close(y.value(), reference.value(), 1e-5, 1e-5));
  EXPECT_TRUE(testing::all_close(layer.weight().grad(), w.grad(), 1e-4, 1e-4));
  EXPECT_TRUE(testing::all_close(grad_x, x.grad(), 1e-4, 1e-4));
  if (b.defined()) {
    EXPECT_TRUE(testing::all_close(layer.bias().grad(), b.grad(), 1e-4, 1e-4));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GroupsOfCodes,
    ::testing::Values(GroupsCase{"int4", 12}, GroupsCase{"inside_a_kernel", 4, 2},
                      GroupsCase{"int8_no_bias", 24, 8, false, 1, false},
                      GroupsCase{"affine", 12, 4, true},
                      GroupsCase{"channel_groups", 6, 4, true, 2},
                      GroupsCase{"learned", 12, 4, false, 1, true, Learning::kScale}),
    [](const auto& p) { return std::string(p.param.name); });

// A row that is one group has a scale for each output: bias and requantization are of integers.
TEST(WeightGroups, OfWholeRowsAreChannels) {
  Rng rng(3);
  const Linear source(LinearOptions{12, 5}, rng);
  QConfig rows = groups_of(12);
  rows.activations = default_w8a8().activations;
  QConfig channels = rows;
  channels.weights->scheme.granularity = kernels::Granularity::kChannel;
  channels.weights->scheme.group_size = 0;
  QatLinear a(source, rows), b(source, channels);
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext context{.training = true};
  const Variable x = input.forward(Variable(random_tensor({7, 12}, 1, DType::kF32)), context);
  EXPECT_EQ(testing::values(quantized(a.forward(x, context))->codes),
            testing::values(quantized(b.forward(x, context))->codes));
}

// Codes that arrive are multiplied as the floats they stand for where nothing else is quantized.
TEST(WeightGroups, TakeCodesAsInput) {
  Rng rng(3);
  const Linear source(LinearOptions{8, 4}, rng);
  QatLinear layer(source, groups_of(4));
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext context{.training = true};
  const Variable x = input.forward(Variable(random_tensor({6, 8}, 1, DType::kF32)), context);
  ASSERT_NE(quantized(x), nullptr);
  const Variable y = layer.forward(x, context);
  EXPECT_EQ(quantized(y), nullptr);
  const Tensor plain = layer.forward(Variable(x.value().clone()), context).value();
  EXPECT_TRUE(testing::all_close(y.value(), plain, 0, 0));
}

TEST(WeightGroups, SayWhatDoesNotFit) {
  Rng rng(3);
  const auto net = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"fc1", std::make_shared<Linear>(LinearOptions{10, 8}, rng)}});
  QuantizeConfig config;
  config.groups = {{{"Linear"}, groups_of(4)}};
  config.groups[0].target_places = {"r.yaml:3:9"};
  EXPECT_EQ(message_of<InputError>([&] { prepare(net, config); }),
            "r.yaml:3:9: quantize.groups.0.targets: fc1: groups of 4 do not divide the 10 weights "
            "of an output (a group_size of 2 would; quantize.ignore leaves the layer in float)");
  QConfig both = groups_of(80000, 8);
  both.activations = default_w8a8().activations;
  config.groups = {{{"Linear"}, both}};
  const auto wide = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"fc", std::make_shared<Linear>(LinearOptions{80000, 1}, rng)}});
  EXPECT_EQ(message_of<InputError>([&] { prepare(wide, config); }),
            "quantize.groups.0.targets: fc: expected at most 66311 products per output, so that "
            "their sum fits int32 (weights of 8 bits, inputs of 8), got 80000");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(groups_of(0)); }),
            "[qscheme] expected a group size above 0 with groups, 0 elsewhere");
}

}  // namespace
}  // namespace steelyard::qat
