// Parameters, initial values, modes and descriptions of the single layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/init.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::names_of;
using testing::random_tensor;
using testing::values;

// Uniform in [-bound, bound): the extremes come close, and mean and variance fit.
void expect_uniform(const Tensor& t, double bound) {
  const auto v = values(t);
  const double n = static_cast<double>(v.size());
  double sum = 0, squares = 0;
  for (const double value : v) {
    sum += value;
    squares += value * value;
  }
  EXPECT_LE(*std::max_element(v.begin(), v.end()), bound);
  EXPECT_GE(*std::min_element(v.begin(), v.end()), -bound);
  EXPECT_NEAR(sum / n / bound, 0.0, 5 / std::sqrt(3 * n));
  EXPECT_NEAR(squares / n / (bound * bound), 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Linear, HasPyTorchsParametersAndInit) {
  Rng rng(1);
  const Linear layer({.in_features = 64, .out_features = 50}, rng);
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(layer.weight().shape(), (Shape{50, 64}));
  EXPECT_EQ(layer.bias().shape(), Shape{50});
  expect_uniform(layer.weight().value(), 1.0 / 8);
  expect_uniform(layer.bias().value(), 1.0 / 8);
  EXPECT_EQ(layer.description(), "Linear(64, 50)");
}

TEST(Linear, MayLackABias) {
  Rng rng(1);
  const Linear layer({.in_features = 2, .out_features = 3, .bias = false}, rng);
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight"));
  EXPECT_FALSE(layer.bias().defined());
  EXPECT_EQ(layer.description(), "Linear(2, 3, no bias)");
  EXPECT_THROW(Linear({.in_features = 0, .out_features = 3}, rng), std::invalid_argument);
}

TEST(Conv2d, HasPyTorchsParametersAndInit) {
  Rng rng(1);
  const Conv2d layer({.in_channels = 8,
                      .out_channels = 16,
                      .kernel_size = {3, 5},
                      .stride = {2, 1},
                      .padding = {1, 2},
                      .groups = 2},
                     rng);
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_EQ(layer.weight().shape(), (Shape{16, 4, 3, 5}));
  expect_uniform(layer.weight().value(), 1.0 / std::sqrt(60.0));
  expect_uniform(layer.bias().value(), 1.0 / std::sqrt(60.0));
  EXPECT_EQ(layer.description(), "Conv2d(8, 16, kernel 3x5, stride 2x1, padding 1x2, groups 2)");
  EXPECT_EQ(layer.options().geometry(),
            (Conv2dGeometry{.stride = {2, 1}, .padding = {1, 2}, .groups = 2}));
}

TEST(Conv2d, EqualSeedsGiveEqualValues) {
  Rng a(7), b(7), c(8);
  const Conv2dOptions options{.in_channels = 2, .out_channels = 3, .kernel_size = {3, 3}};
  const Conv2d first(options, a), second(options, b), third(options, c);
  EXPECT_EQ(values(first.weight().value()), values(second.weight().value()));
  EXPECT_NE(values(first.weight().value()), values(third.weight().value()));
}

TEST(Conv2d, Errors) {
  Rng rng(1);
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { Conv2d({.in_channels = 3, .out_channels = 4, .groups = 2}, rng); }),
            "[Conv2d] expected groups that divide in_channels = 3 and out_channels = 4, got 2");
  EXPECT_THROW(Conv2d({.in_channels = 3}, rng), std::invalid_argument);
  EXPECT_THROW(Conv2d({.in_channels = 3, .out_channels = 1, .kernel_size = {0, 1}}, rng),
               std::invalid_argument);
}

TEST(Convolutions, DescribeWhatIsNotAtItsDefault) {
  Rng rng(1);
  EXPECT_EQ(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .dilation = 2}, rng)
                .description(),
            "Conv1d(2, 4, kernel 3, stride 1, padding 0, dilation 2)");
  EXPECT_EQ(ConvTranspose2d({.in_channels = 4,
                             .out_channels = 2,
                             .kernel_size = {3, 3},
                             .stride = {2, 2},
                             .output_padding = {1, 1},
                             .groups = 2,
                             .bias = false},
                            rng)
                .description(),
            "ConvTranspose2d(4, 2, kernel 3x3, stride 2x2, padding 0x0, output padding 1x1, groups "
            "2, no bias)");
}

TEST(Convolutions, RefuseSizesThatDoNotFit) {
  Rng rng(1);
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { ConvTranspose2d({.in_channels = 4, .out_channels = 3, .groups = 2}, rng); }),
            "[ConvTranspose2d] expected groups that divide in_channels = 4 and out_channels = 3, "
            "got 2");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { Conv1d({.in_channels = 4, .out_channels = 3, .kernel_size = 0}, rng); }),
            "[Conv1d] expected channels and kernel of at least 1, got 4, 3, 0");
}

TEST(BatchNorm2d, HasPyTorchsNamesAndInit) {
  const BatchNorm2d layer({.channels = 2});
  EXPECT_THAT(names_of(layer.named_parameters()), ElementsAre("weight", "bias"));
  EXPECT_THAT(names_of(layer.named_buffers()),
              ElementsAre("running_mean", "running_var", "num_batches_tracked"));
  EXPECT_THAT(values(layer.weight().value()), ElementsAre(1, 1));
  EXPECT_THAT(values(layer.bias().value()), ElementsAre(0, 0));
  EXPECT_THAT(values(layer.running_mean()), ElementsAre(0, 0));
  EXPECT_THAT(values(layer.running_var()), ElementsAre(1, 1));
  EXPECT_EQ(layer.num_batches_tracked().dtype(), DType::kI64);
  EXPECT_EQ(layer.num_batches_tracked().item(), 0);
}

TEST(BatchNorm2d, OnlyUnfrozenTrainingMovesTheStatistics) {
  BatchNorm2d layer({.channels = 2});
  const Variable x(random_tensor({2, 3, 3, 2}, 1, DType::kF32));
  ForwardContext evaluation, training{.training = true};
  const auto y_evaluation = values(layer.forward(x, evaluation).value());
  EXPECT_EQ(layer.num_batches_tracked().item(), 0);
  layer.set_frozen(true);
  EXPECT_EQ(values(layer.forward(x, training).value()), y_evaluation);
  EXPECT_EQ(layer.num_batches_tracked().item(), 0);
  EXPECT_THAT(values(layer.running_mean()), ElementsAre(0, 0));
  EXPECT_EQ(layer.description(), "BatchNorm2d(2, frozen)");
  layer.set_frozen(false);
  EXPECT_NE(values(layer.forward(x, training).value()), y_evaluation);
  EXPECT_EQ(layer.num_batches_tracked().item(), 1);
  EXPECT_NE(values(layer.named_buffers()[0].tensor), (std::vector<double>{0, 0}));
}

TEST(BatchNorm2d, TheMomentumMayChange) {
  BatchNorm2d layer({.channels = 2});
  const Variable x(random_tensor({2, 3, 3, 2}, 1, DType::kF32));
  ForwardContext training{.training = true};
  layer.set_momentum(0.0);
  layer.forward(x, training);
  EXPECT_THAT(values(layer.running_mean()), ElementsAre(0, 0));
  EXPECT_THROW(layer.set_momentum(-0.1), std::invalid_argument);
}

TEST(BatchNorm2d, Errors) {
  EXPECT_THROW(BatchNorm2d({.channels = 0}), std::invalid_argument);
  EXPECT_THROW(BatchNorm2d({.channels = 1, .eps = 0}), std::invalid_argument);
  EXPECT_THROW(BatchNorm2d({.channels = 1, .momentum = 1.5}), std::invalid_argument);
}

TEST(DropoutLayer, IsTheIdentityInEvaluation) {
  Dropout layer(0.5);
  const Variable x(random_tensor({20}, 1));
  ForwardContext evaluation;
  EXPECT_EQ(layer.forward(x, evaluation).node(), x.node());
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  EXPECT_NE(values(layer.forward(x, training).value()), values(x.value()));
  EXPECT_GT(rng.state().position, 0u);
}

TEST(DropoutLayer, Errors) {
  EXPECT_THROW(Dropout(1.0), std::invalid_argument);
  Dropout layer(0.5);
  ForwardContext training{.training = true};
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { layer.forward(Variable(Tensor::zeros({2})), training); }),
            "[Dropout] expected a random generator in training, got none");
}

TEST(Layers, ShapesThroughTheImageLayers) {
  ForwardContext context;
  const Variable x(random_tensor({2, 6, 4, 3}, 1));
  EXPECT_EQ(MaxPool2d({}).forward(x, context).shape(), (Shape{2, 3, 2, 3}));
  EXPECT_EQ(AvgPool2d({{{3, 3}, {1, 1}, {1, 1}}}).forward(x, context).shape(), x.shape());
  EXPECT_EQ(GlobalAvgPool().forward(x, context).shape(), (Shape{2, 3}));
  EXPECT_EQ(Flatten().forward(x, context).shape(), (Shape{2, 72}));
  EXPECT_EQ(Identity().forward(x, context).node(), x.node());
}

TEST(Layers, TypeNamesAndDescriptions) {
  EXPECT_EQ(ReLU().type_name(), "ReLU");
  EXPECT_EQ(ReLU6().type_name(), "ReLU6");
  EXPECT_EQ(GlobalAvgPool().type_name(), "GlobalAvgPool");
  EXPECT_EQ(Flatten().type_name(), "Flatten");
  EXPECT_EQ(Identity().type_name(), "Identity");
  EXPECT_EQ(MaxPool2d({}).description(), "MaxPool2d(kernel 2x2, stride 2x2, padding 0x0)");
  EXPECT_EQ(AvgPool2d({.count_include_pad = false}).description(),
            "AvgPool2d(kernel 2x2, stride 2x2, padding 0x0, padding not counted)");
}

TEST(PReLU, HasASlopeForEachChannelOrOne) {
  ForwardContext context;
  PReLU one(1), four(4);
  EXPECT_EQ(one.forward(Variable(Tensor::zeros({2, 3})), context).shape(), (Shape{2, 3}));
  EXPECT_EQ(four.forward(Variable(Tensor::zeros({2, 4})), context).shape(), (Shape{2, 4}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              four.forward(Variable(Tensor::zeros({2, 1})), context);
            }),
            "[PReLU] expected input [..., 4], got [2, 1]");
  EXPECT_THROW(four.forward(Variable(Tensor::zeros({})), context), std::invalid_argument);
}

// What a file will set is not drawn: it takes as long as loading it.
TEST(Layers, WeightsThatComeLaterAreZeros) {
  Rng rng(3);
  const auto largest = [&] {
    const Linear linear({.in_features = 4, .out_features = 3}, rng);
    float most = 0;
    for (const float w : linear.weight().value().span<float>()) most = std::max(most, std::abs(w));
    return most;
  };
  {
    const WeightsLater later;
    EXPECT_EQ(largest(), 0);
  }
  EXPECT_GT(largest(), 0);
}

}  // namespace
}  // namespace steelyard
