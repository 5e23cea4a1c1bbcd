// Weights with a scale for each group of an output's: values against the definition, and what has
// no such form.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/error.h"
#include "steelyard/layers/conv2d.h"
#include "steelyard/layers/linear.h"
#include "steelyard/layers/sequential.h"
#include "steelyard/qat/integer_product.h"
#include "steelyard/qat/prepare.h"
#include "steelyard/qat/qat_conv2d.h"
#include "steelyard/qat/qat_linear.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::message_of;
using testing::random_tensor;

QConfig groups_of(std::int64_t size, int bits = 4) {
  return {.weights =
              QuantizerConfig{
                  {.bits = bits, .strategy = observers::Strategy::kGroup, .group_size = size},
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

// Codes that arrive are multiplied as the floats they stand for.
TEST(WeightGroups, TakeCodesAsInput) {
  Rng rng(3);
  const Linear source(LinearOptions{8, 4}, rng);
  QatLinear layer(source, groups_of(4));
  FakeQuantize input(*default_w8a8().activations, QuantizerRole::kActivation);
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
  EXPECT_EQ(message_of<InputError>([&] { prepare(net, config); }),
            "fc1: groups of 4 do not divide the 10 weights of an output");
  QConfig both = groups_of(5);
  both.activations = default_w8a8().activations;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(both); }),
            "[qconfig] weights in groups are multiplied in float: leave out the activations");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(groups_of(0)); }),
            "[qscheme] expected a group size above 0 with groups, 0 elsewhere");
}

}  // namespace
}  // namespace steelyard::qat
