// Tensors for tests: random values, and comparisons that name the first difference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::testing {

// Uniform values in [-1, 1) from a 64-bit linear congruential generator (Knuth's MMIX constants):
// independent of the library's own generator.
inline Tensor random_tensor(Shape shape, std::uint64_t seed, DType dtype = DType::kF64) {
  Tensor t = Tensor::empty(std::move(shape), DType::kF64);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (double& value : t.span<double>()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(state >> 11) * 0x1p-52 - 1.0;
  }
  return t.to(dtype);
}

// Distinct values, 0.1 apart, in a shuffled order: no two compete within a finite difference.
inline Tensor spread_tensor(Shape shape) {
  Tensor t = Tensor::empty(std::move(shape), DType::kF64);
  const std::int64_t n = t.size();
  std::int64_t stride = 37;
  while (std::gcd(stride, n) != 1) ++stride;
  for (std::int64_t i = 0; i < n; ++i) {
    t.data<double>()[i] = 0.1 * static_cast<double>((i * stride) % n - n / 2) + 0.05;
  }
  return t;
}

// The names of parameters, buffers or modules.
template <typename Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> list;
  for (const auto& one : all) list.push_back(one.name);
  return list;
}

inline std::vector<double> values(const Tensor& t) {
  const Tensor wide = t.to(Device{}).to(DType::kF64);
  const auto span = wide.span<double>();
  return {span.begin(), span.end()};
}

// Equal shapes, and |a - b| <= atol + rtol * |b| for every element.
inline ::testing::AssertionResult all_close(const Tensor& a, const Tensor& b, double rtol,
                                            double atol) {
  if (a.shape() != b.shape()) {
    return ::testing::AssertionFailure()
           << "shapes " << shape_string(a.shape()) << " and " << shape_string(b.shape());
  }
  const auto x = values(a);
  const auto y = values(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // infinities, too
    if (!(std::abs(x[i] - y[i]) <= atol + rtol * std::abs(y[i]))) {
      return ::testing::AssertionFailure() << "element " << i << ": " << x[i] << " and " << y[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace steelyard::testing
