// Random data, comparisons and a thread-count guard for the float kernels' tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::test {

// Uniform in [-1, 1), the same on every run.
template <typename T>
std::vector<T> random_values(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(n);
  for (T& v : values) v = static_cast<T>(double(generator()) / 2147483648.0 - 1.0);
  return values;
}

// Every backend with both precisions of the CPU.
inline std::vector<CpuProducts> all_products() {
  std::vector<CpuProducts> all;
  for (const Backend backend : available_backends()) {
    for (const auto precision : {MatmulPrecision::kFloat32, MatmulPrecision::kBf16}) {
      all.push_back({backend, precision});
    }
  }
  return all;
}
inline std::string products_name(const CpuProducts& products) {
  const bool bf16 = products.precision == MatmulPrecision::kBf16;
  return std::string(backend_name(products.backend)) + (bf16 ? "_bf16" : "");
}

// An operand as a product with that precision takes it.
inline double operand(const CpuProducts& products, float value) {
  const bool bf16 = products.precision == MatmulPrecision::kBf16;
  return bf16 ? widen(narrow<BFloat16>(value)) : value;
}
inline double operand(const CpuProducts&, double value) { return value; }

// A sum in double with the magnitude of its terms, which bounds the error of summing in T.
struct ReferenceSum {
  double value = 0;
  double magnitude = 0;
  std::int64_t terms = 0;

  void add(double term) {
    value += term;
    magnitude += std::abs(term);
    ++terms;
  }
  template <typename T>
  double tolerance() const {
    const double eps = std::numeric_limits<T>::epsilon();
    return eps * magnitude * (4 + std::sqrt(double(terms)));
  }
};

template <typename T>
void expect_sums(const std::vector<T>& got, const std::vector<ReferenceSum>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  int failures = 0;
  for (std::size_t i = 0; i < got.size() && failures < 5; ++i) {
    const double error = std::abs(double(got[i]) - expected[i].value);
    if (!(error <= expected[i].tolerance<T>())) {
      ADD_FAILURE() << "element " << i << ": got " << got[i] << ", expected " << expected[i].value;
      ++failures;
    }
  }
}

// Runs with a number of threads and restores the former one.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : former_(num_threads()) { set_num_threads(threads); }
  ~ThreadCount() { set_num_threads(former_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int former_;
};

// compute() returns the same bits with 1, 2 and 3 threads.
template <class Compute>
void expect_same_for_any_thread_count(Compute&& compute) {
  const ThreadCount one(1);
  const auto expected = compute();
  for (const int threads : {2, 3}) {
    const ThreadCount several(threads);
    EXPECT_EQ(compute(), expected) << threads << " threads";
  }
}

}  // namespace steelyard::kernels::test
