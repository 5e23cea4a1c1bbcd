// Gradients against central differences in float64.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {

struct GradcheckOptions {
  double eps = 1e-6;
  double atol = 1e-5;
  double rtol = 1e-3;
};

// Compares d sum(r * f()) / d leaf, r a fixed random tensor, with central differences for every
// element of every leaf (f64, requiring gradients). f() must be a pure function of the leaves'
// values; these must stay off kinks by more than eps.
inline ::testing::AssertionResult gradcheck(const std::function<Variable()>& f,
                                            std::vector<Variable> leaves,
                                            const GradcheckOptions& options = {}) {
  for (Variable& leaf : leaves) leaf.clear_grad();
  const Variable y = f();
  const Tensor r = random_tensor(y.shape(), 99);
  y.backward(r);
  const auto projected = [&] {
    const NoGradGuard no_grad;
    const Tensor out = f().value();
    double sum = 0;
    for (std::int64_t i = 0; i < r.size(); ++i) sum += r.data<double>()[i] * out.data<double>()[i];
    return sum;
  };
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    if (!leaves[l].grad().defined()) {
      return ::testing::AssertionFailure() << "leaf " << l << " got no gradient";
    }
    double* x = leaves[l].value().data<double>();
    const double* grad = leaves[l].grad().data<double>();
    for (std::int64_t i = 0; i < leaves[l].value().size(); ++i) {
      const double kept = x[i];
      x[i] = kept + options.eps;
      const double above = projected();
      x[i] = kept - options.eps;
      const double below = projected();
      x[i] = kept;
      const double numeric = (above - below) / (2 * options.eps);
      if (!(std::abs(grad[i] - numeric) <= options.atol + options.rtol * std::abs(numeric))) {
        return ::testing::AssertionFailure() << "leaf " << l << " element " << i << ": backward "
                                             << grad[i] << ", differences " << numeric;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// A float64 leaf that requires a gradient.
inline Variable leaf(Tensor value) { return Variable(std::move(value), true); }
inline Variable random_leaf(Shape shape, std::uint64_t seed) {
  return leaf(random_tensor(std::move(shape), seed));
}

// The message of the exception of type E that f() throws; fails the test when it throws none.
template <typename E>
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no exception of the expected type";
  return "";
}

}  // namespace steelyard::testing
