#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "steelyard/framework/train/gradient_clipping.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::values;

// Gradients 3 (f32), [0, 4] (f64) and none: the joint norm is 5.
std::vector<NamedParameter> three_four() {
  std::vector<NamedParameter> all{{"a", Variable(Tensor::zeros({1}), true)},
                                  {"b", Variable(Tensor::zeros({2}, DType::kF64), true)},
                                  {"c", Variable(Tensor::zeros({4}), true)}};
  all[0].variable.set_grad(Tensor::from<float>({3}, {1}));
  all[1].variable.set_grad(Tensor::from<double>({0, -4}, {2}));
  return all;
}

TEST(ClipGradNorm, ScalesToTheLimit) {
  const auto all = three_four();
  EXPECT_DOUBLE_EQ(clip_grad_norm(all, 1.0).item(), 5.0);
  const double factor = 1.0 / (5.0 + 1e-6);
  EXPECT_THAT(values(all[0].variable.grad()), ElementsAre(DoubleNear(3 * factor, 1e-7)));
  EXPECT_THAT(values(all[1].variable.grad()), ElementsAre(0, DoubleNear(-4 * factor, 1e-15)));
  EXPECT_FALSE(all[2].variable.grad().defined());
}

// A module in two slots lists its parameters twice.
TEST(ClipGradNorm, CountsAParameterThatIsGivenTwiceOnce) {
  auto all = three_four();
  all.push_back({"d", all[1].variable});
  EXPECT_DOUBLE_EQ(clip_grad_norm(all, 2.5).item(), 5.0);
  EXPECT_THAT(values(all[1].variable.grad()), ElementsAre(0, DoubleNear(-2, 1e-6)));
}

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  const auto all = three_four();
  EXPECT_DOUBLE_EQ(clip_grad_norm(all, 6.0).item(), 5.0);
  EXPECT_THAT(values(all[0].variable.grad()), ElementsAre(3));
  EXPECT_THAT(values(all[1].variable.grad()), ElementsAre(0, -4));
}

TEST(ClipGradNorm, AccumulatesInDouble) {
  std::vector<NamedParameter> all{{"w", Variable(Tensor::zeros({2}), true)}};
  all[0].variable.set_grad(Tensor::from<float>({1e30f, 1e30f}, {2}));  // squares overflow float
  EXPECT_NEAR(clip_grad_norm(all, 1.0).item() / (std::sqrt(2.0) * 1e30), 1.0, 1e-7);
  EXPECT_NEAR(values(all[0].variable.grad())[0], std::sqrt(0.5), 1e-7);
}

TEST(ClipGradNorm, ReportsANormThatIsNotFiniteAndKeepsTheGradients) {
  auto all = three_four();
  all[1].variable.grad().data<double>()[0] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(clip_grad_norm(all, 1.0).item()));
  EXPECT_THAT(values(all[0].variable.grad()), ElementsAre(3));
}

TEST(ClipGradNorm, NeedsAPositiveLimit) {
  EXPECT_THROW(clip_grad_norm({}, 0.0), std::invalid_argument);
  EXPECT_THROW(clip_grad_norm({}, std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  EXPECT_EQ(clip_grad_norm({}, 1.0).item(), 0.0);
}

TEST(ClipGradNorm, RefusesGradientsThatAreNoFloats) {
  auto all = three_four();
  all.push_back({"d", Variable(Tensor::zeros({2}, DType::kI32))});
  EXPECT_DOUBLE_EQ(clip_grad_norm(all, 6.0).item(), 5.0);
  all[3].variable.set_grad(Tensor::full({2}, 7.0, DType::kI32));
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { clip_grad_norm(all, 1.0); }),
            "[clip_grad_norm] expected a gradient f32 or f64 of 'd', got i32");
}

TEST(FirstNonFiniteGradient, NamesTheParameter) {
  const auto all = three_four();
  EXPECT_EQ(first_non_finite_gradient(all), std::nullopt);
  all[1].variable.grad().data<double>()[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(first_non_finite_gradient(all), "b");
  all[0].variable.grad().data<float>()[0] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite_gradient(all), "a");
}

}  // namespace
}  // namespace steelyard
