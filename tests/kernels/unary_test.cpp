#include "steelyard/kernels/unary/unary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

namespace steelyard::kernels {
namespace {

template <typename T>
class UnaryKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(UnaryKernel, Types);

template <typename T>
struct ValueAndSlope {
  T value, slope;
};

template <typename T>
ValueAndSlope<T> at(UnaryFunction function, T x, T parameter = 1) {
  ValueAndSlope<T> point{};
  const T one = 1;
  run(Unary<T>{1, function, parameter, &x, &point.value});
  run(UnaryBackward<T>{1, function, parameter, &x, &one, &point.slope});
  return point;
}

struct Definition {
  UnaryFunction function;
  std::function<double(double)> value, slope;
};

TYPED_TEST(UnaryKernel, MatchesItsDefinition) {
  using T = TypeParam;
  const Definition definitions[] = {
      {UnaryFunction::kSqrt, [](double x) { return std::sqrt(x); },
       [](double x) { return 1 / (2 * std::sqrt(x)); }},
      {UnaryFunction::kExp, [](double x) { return std::exp(x); },
       [](double x) { return std::exp(x); }},
      {UnaryFunction::kLog, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
      {UnaryFunction::kAbs, [](double x) { return std::abs(x); }, [](double) { return 1.0; }},
      {UnaryFunction::kErf, [](double x) { return std::erf(x); },
       [](double x) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }},
      {UnaryFunction::kTanh, [](double x) { return std::tanh(x); },
       [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); }},
      {UnaryFunction::kSin, [](double x) { return std::sin(x); },
       [](double x) { return std::cos(x); }},
      {UnaryFunction::kCos, [](double x) { return std::cos(x); },
       [](double x) { return -std::sin(x); }},
      {UnaryFunction::kSoftplus, [](double x) { return std::log(1 + std::exp(x)); },
       [](double x) { return std::exp(x) / (1 + std::exp(x)); }},
      {UnaryFunction::kElu, [](double x) { return x; }, [](double) { return 1.0; }},
      {UnaryFunction::kSign, [](double) { return 1.0; }, [](double) { return 0.0; }},
      {UnaryFunction::kFloor, [](double x) { return std::floor(x); }, [](double) { return 0.0; }},
      {UnaryFunction::kCeil, [](double x) { return std::ceil(x); }, [](double) { return 0.0; }},
      {UnaryFunction::kRound, [](double x) { return std::rint(x); }, [](double) { return 0.0; }},
      {UnaryFunction::kPower, [](double x) { return std::pow(x, -1.5); },
       [](double x) { return -1.5 * std::pow(x, -2.5); }}};
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-14;
  for (const Definition& d : definitions) {
    for (const double x : {0.03125, 0.5, 1.0, 2.75}) {
      const ValueAndSlope<T> point = at<T>(d.function, static_cast<T>(x), T(-1.5));
      const double y = d.value(x), slope = d.slope(x);
      EXPECT_NEAR(point.value, y, tolerance * (1 + std::abs(y))) << x;
      EXPECT_NEAR(point.slope, slope, tolerance * (1 + std::abs(slope))) << x;
    }
  }
}

TYPED_TEST(UnaryKernel, HasItsEdges) {
  using T = TypeParam;
  EXPECT_EQ(at<T>(UnaryFunction::kAbs, 0).slope, 0);
  EXPECT_EQ(at<T>(UnaryFunction::kAbs, -2).slope, -1);
  EXPECT_EQ(at<T>(UnaryFunction::kSign, 0).value, 0);
  EXPECT_EQ(at<T>(UnaryFunction::kSign, -2).value, -1);
  EXPECT_EQ(at<T>(UnaryFunction::kRound, T(2.5)).value, 2);
  EXPECT_EQ(at<T>(UnaryFunction::kRound, T(-1.5)).value, -2);
  EXPECT_EQ(at<T>(UnaryFunction::kSoftplus, -1000).slope, 0);
  EXPECT_EQ(at<T>(UnaryFunction::kSoftplus, 200).value, 200);
  EXPECT_EQ(at<T>(UnaryFunction::kElu, -200, T(0.5)).value, T(-0.5));
  EXPECT_EQ(at<T>(UnaryFunction::kElu, 0, T(0.5)).slope, T(0.5));
  EXPECT_EQ(at<T>(UnaryFunction::kPower, -2, 3).value, -8);
  EXPECT_EQ(at<T>(UnaryFunction::kPower, -2, 3).slope, 12);
  EXPECT_EQ(at<T>(UnaryFunction::kPower, 0, 0).value, 1);
  EXPECT_EQ(at<T>(UnaryFunction::kPower, 0, 0).slope, 0);
  EXPECT_EQ(at<T>(UnaryFunction::kPower, 0, 1).slope, 1);
  EXPECT_TRUE(std::isnan(at<T>(UnaryFunction::kSqrt, -1).value));
  EXPECT_TRUE(std::isnan(at<T>(UnaryFunction::kPower, -1, 0.5).value));
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  EXPECT_EQ(at<T>(UnaryFunction::kLog, 0).value, -kInfinity);
  EXPECT_EQ(at<T>(UnaryFunction::kExp, 1000).value, kInfinity);
}

}  // namespace
}  // namespace steelyard::kernels
