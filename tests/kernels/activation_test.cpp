#include "steelyard/kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <type_traits>
#include <vector>

namespace steelyard::kernels {
namespace {

template <typename T>
class Activations : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Activations, Types);

template <typename T>
struct Result {
  std::vector<T> y, grad;
};

template <typename T>
Result<T> run(ActivationFunction activation, const std::vector<T>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  Result<T> result{std::vector<T>(x.size()), std::vector<T>(x.size())};
  const std::vector<T> ones(x.size(), T(1));
  run(Activate<T>{n, activation, x.data(), result.y.data()});
  run(ActivateBackward<T>{n, activation, x.data(), ones.data(), result.grad.data()});
  return result;
}

// x, then values and slopes to 15 digits: erf by its Taylor series and exp in 40 decimals;
// hardswish by hand.
struct Point {
  double x, y, slope;
};

template <typename T>
void expect_points(ActivationFunction activation, const std::vector<Point>& points) {
  const double tolerance = std::is_same_v<T, float> ? 2e-7 : 1e-14;
  for (const Point& p : points) {
    const auto r = run<T>(activation, {static_cast<T>(p.x)});
    EXPECT_NEAR(r.y[0], p.y, tolerance * (1 + std::abs(p.y))) << p.x;
    EXPECT_NEAR(r.grad[0], p.slope, tolerance * 2) << p.x;
  }
}

TYPED_TEST(Activations, KnownValues) {
  expect_points<TypeParam>(ActivationFunction::kSigmoid,
                           {{-3, 0.0474258731775668, 0.0451766597309121},
                            {-0.5, 0.377540668798145, 0.235003712201594},
                            {0, 0.5, 0.25},
                            {2.5, 0.924141819978757, 0.0701037165451082}});
  expect_points<TypeParam>(ActivationFunction::kGelu,
                           {{-3, -0.00404969409489028, -0.0119456472041839},
                            {-0.5, -0.154268769362993, 0.132504875343837},
                            {0, 0, 0.5},
                            {0.75, 0.580029485717349, 0.999225721739235},
                            {2.5, 2.48447583668556, 1.03761108590815}});
  // Tanh of 0.797884560802865 * (x + 0.044715 x^3), to 15 digits.
  expect_points<TypeParam>(ActivationFunction::kTanhGelu,
                           {{-3, -0.00363739208177302, -0.0115841666309697},
                            {-0.5, -0.154285990174856, 0.132630096465358},
                            {0, 0, 0.500000000000000},
                            {0.75, 0.579960555165620, 0.998938256137414},
                            {2.5, 2.48491573391000, 1.03795157621267}});
  expect_points<TypeParam>(ActivationFunction::kSilu,
                           {{-3, -0.1422776195327, -0.0881041060151696},
                            {-0.5, -0.188770334399073, 0.260038812697348},
                            {0, 0, 0.5},
                            {0.75, 0.509384024381545, 0.842599944496753},
                            {2.5, 2.31035454994689, 1.09940111134153}});
  expect_points<TypeParam>(ActivationFunction::kTanh,
                           {{-3, -0.995054753686730, 0.00986603716544019},
                            {-0.5, -0.462117157260010, 0.786447732965927},
                            {0, 0, 1},
                            {2.5, 0.986614298151430, 0.0265922266831605}});
  expect_points<TypeParam>(ActivationFunction::kHardswish, {{-4, 0, 0},
                                                            {-3, 0, 0},
                                                            {-1.5, -0.375, 0},
                                                            {0, 0, 0.5},
                                                            {1.5, 1.125, 1},
                                                            {3, 3, 1},
                                                            {4, 4, 1}});
}

TYPED_TEST(Activations, ExtremesAndNaN) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const auto activation : {ActivationFunction::kGelu, ActivationFunction::kTanhGelu,
                                ActivationFunction::kSilu, ActivationFunction::kHardswish}) {
    const auto r = run<T>(activation, {T(-1e4), T(1e4), nan});
    EXPECT_EQ(r.y[0], T(0));
    EXPECT_EQ(r.y[1], T(1e4));
    EXPECT_EQ(r.grad[0], T(0));
    EXPECT_EQ(r.grad[1], T(1));
    EXPECT_TRUE(std::isnan(r.y[2]));
    EXPECT_TRUE(std::isnan(r.grad[2]));
  }
}

// Against the standard library, far into the tails.
TEST(ExactActivations, AreTheFunctions) {
  const double factor = std::sqrt(2 / std::numbers::pi);
  for (int step = -1500; step <= 1500; ++step) {
    const auto x = static_cast<float>(step / 125.0);
    const double v = x, cdf = std::erfc(-v / std::numbers::sqrt2) / 2;
    const double density = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
    const double u = factor * (v + 0.044715 * v * v * v);
    const double gate = 1 / (1 + std::exp(-2 * u)), other = 1 / (1 + std::exp(2 * u));
    const double gate_slope = 2 * gate * other * factor * (1 + 3 * 0.044715 * v * v);
    EXPECT_NEAR(exact_normal_cdf(v), cdf, 3e-13 * cdf) << x;
    EXPECT_FLOAT_EQ(exact_activation(ActivationFunction::kGelu, x), static_cast<float>(v * cdf))
        << x;
    EXPECT_FLOAT_EQ(exact_activation(ActivationFunction::kTanhGelu, x),
                    static_cast<float>(v * gate))
        << x;
    EXPECT_FLOAT_EQ(exact_activation(ActivationFunction::kTanh, x),
                    static_cast<float>(std::tanh(v)))
        << x;
    EXPECT_NEAR(exact_slope(ActivationFunction::kTanh, x), 1 - std::tanh(v) * std::tanh(v), 1e-7);
    EXPECT_NEAR(exact_slope(ActivationFunction::kGelu, x), cdf + v * density, 2e-7) << x;
    EXPECT_NEAR(exact_slope(ActivationFunction::kTanhGelu, x), gate + v * gate_slope, 2e-7) << x;
  }
}

TYPED_TEST(Activations, EveryElementOfLongArrays) {
  using T = TypeParam;
  std::vector<T> x(70001);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = T(8) * T(i) / T(x.size()) - T(4);
  const auto all = run(ActivationFunction::kSilu, x);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2049}, x.size() - 1}) {
    const auto one = run<T>(ActivationFunction::kSilu, {x[i]});
    EXPECT_EQ(all.y[i], one.y[0]);
    EXPECT_EQ(all.grad[i], one.grad[0]);
  }
}

// All bytes, with vectors that end anywhere; what follows the output stays.
TEST(Lookups, AreTheTablesEntries) {
  std::mt19937 generator(7);
  std::vector<std::uint8_t> bytes(256);
  std::vector<float> floats(256);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(generator());
  for (std::size_t i = 0; i < 256; ++i) floats[i] = 0.5F * static_cast<float>(i) - 3;
  std::vector<std::size_t> sizes = {1000, 70001};
  for (std::size_t n = 0; n <= 130; ++n) sizes.push_back(n);
  for (const std::size_t n : sizes) {
    std::vector<std::uint8_t> x(n), y(n + 1, 0xA5);
    std::vector<float> factor(n), plain(n + 1, -1), scaled(n + 1, -1);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<std::uint8_t>(n < 256 ? generator() : i);
      factor[i] = 0.25F * static_cast<float>(i % 9);
    }
    const auto count = static_cast<std::int64_t>(n);
    run(MapBytes{count, x.data(), bytes.data(), y.data()});
    run(MapToFloats{count, x.data(), floats.data(), nullptr, plain.data()});
    run(MapToFloats{count, x.data(), floats.data(), factor.data(), scaled.data()});
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(y[i], bytes[x[i]]) << i << " of " << n;
      ASSERT_EQ(plain[i], floats[x[i]]) << i << " of " << n;
      ASSERT_EQ(scaled[i], floats[x[i]] * factor[i]) << i << " of " << n;
    }
    EXPECT_EQ(y[n], 0xA5);
    EXPECT_EQ(plain[n], -1.0F);
    EXPECT_EQ(scaled[n], -1.0F);
  }
}

}  // namespace
}  // namespace steelyard::kernels
