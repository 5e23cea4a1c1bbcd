#include "steelyard/kernels/optimizer_step/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

template <typename T>
class OptimizerStep : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerStep, Types);

// From 0 to 1: of SGD's steps they limit many, but not all.
template <typename T>
std::vector<T> units_of(std::int64_t n) {
  std::vector<T> units = random_values<T>(n, 99);
  for (T& unit : units) unit = std::abs(unit);
  return units;
}

// PyTorch's documented update, by hand in double; with units, of limited gradients.
TYPED_TEST(OptimizerStep, Sgd) {
  using T = TypeParam;
  const std::int64_t n = 40001;
  struct Setting {
    double lr, weight_decay;
    SgdStep step;
    bool limited = false;
  };
  const auto units = units_of<T>(n);
  for (const auto& [lr, weight_decay, step, limited] :
       {Setting{0.1, 0, {0, false}}, Setting{0.1, 0.01, {0, false}},
        Setting{0.05, 0.01, {0.9, false}}, Setting{0.05, 0.01, {0.9, true}},
        Setting{0.1, 0.01, {0, false}, true}, Setting{0.05, 0.01, {0.9, true}, true}}) {
    auto param = random_values<T>(n, 1);
    std::vector<T> buffer(n, T(0));
    std::vector<double> expected(param.begin(), param.end()), momentum(n);
    for (int t = 0; t < 3; ++t) {
      const auto grad = random_values<T>(n, 10 + t);
      const std::vector<SgdTensor<T>> tensors = {
          {n, &lr, grad.data(), step.momentum == 0 ? nullptr : buffer.data(), param.data(),
           weight_decay, limited ? units.data() : nullptr, 2}};
      run(SgdUpdate<T>{tensors, step});
      for (std::int64_t i = 0; i < n; ++i) {
        const double most = limited ? 2 * (1 - step.momentum) * double(units[i]) : INFINITY;
        const double g = std::clamp(double(grad[i]) + weight_decay * expected[i], -most, most);
        momentum[i] = t == 0 ? g : step.momentum * momentum[i] + g;
        expected[i] -= lr * (step.nesterov ? g + step.momentum * momentum[i] : momentum[i]);
      }
    }
    const double tolerance = 16 * std::numeric_limits<T>::epsilon();
    for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(double(param[i]), expected[i], tolerance);
  }
}

TYPED_TEST(OptimizerStep, AdamW) {
  using T = TypeParam;
  const std::int64_t n = 40001;
  const AdamWStep step{0.9, 0.999, 1e-8};
  auto param = random_values<T>(n, 1);
  std::vector<T> exp_avg(n, T(0)), exp_avg_sq(n, T(0));
  const auto units = units_of<T>(n);
  std::vector<double> expected(param.begin(), param.end()), m(n), v(n);
  for (int count = 1; count <= 4; ++count) {
    const auto grad = random_values<T>(n, static_cast<unsigned>(10 + count));
    double factors[kAdamWFactors];
    adamw_factors(step, 0.01, 0.1, count, factors);
    const std::vector<AdamWTensor<T>> tensors = {
        {n, factors, grad.data(), exp_avg.data(), exp_avg_sq.data(), param.data(), units.data()}};
    run(AdamWUpdate<T>{tensors, step});
    for (std::int64_t i = 0; i < n; ++i) {
      const double g = double(grad[i]);
      expected[i] *= 1 - 0.01 * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mhat = m[i] / (1 - std::pow(0.9, double(count)));
      const double vhat = v[i] / (1 - std::pow(0.999, double(count)));
      expected[i] -= 0.01 * double(units[i]) * mhat / (std::sqrt(vhat) + 1e-8);
    }
  }
  const double tolerance = 64 * std::numeric_limits<T>::epsilon();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(double(param[i]), expected[i], tolerance) << i;
}

}  // namespace
}  // namespace steelyard::kernels
