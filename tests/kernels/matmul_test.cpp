#include "steelyard/kernels/matmul/matmul.h"

#include <cstdlib>
#include <stdexcept>
#include <tuple>

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::operand;
using test::random_values;
using test::ReferenceSum;

class MatrixProduct : public ::testing::TestWithParam<std::tuple<CpuProducts, MatmulShape>> {
 protected:
  template <typename T>
  void check() const {
    const auto& [products, s] = GetParam();
    const auto a = random_values<T>(s.m * s.k, 1), b = random_values<T>(s.k * s.n, 2);
    std::vector<T> c(s.m * s.n, T(99));
    run(Matmul<T>{s, a.data(), b.data(), c.data(), products});
    std::vector<ReferenceSum> expected(c.size());
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        for (std::int64_t k = 0; k < s.k; ++k) {
          const double left = operand(products, a[s.transpose_a ? k * s.m + i : i * s.k + k]);
          const double right = operand(products, b[s.transpose_b ? j * s.k + k : k * s.n + j]);
          expected[i * s.n + j].add(left * right);
        }
      }
    }
    test::expect_sums(c, expected);
  }
};

TEST_P(MatrixProduct, Float) { check<float>(); }
TEST_P(MatrixProduct, Double) { check<double>(); }

std::vector<MatmulShape> shapes() {
  std::vector<MatmulShape> all;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [m, n, k] : std::vector<std::tuple<int, int, int>>{{1, 1, 1},
                                                                          {3, 5, 7},
                                                                          {1, 33, 20},
                                                                          {17, 1, 64},
                                                                          {64, 10, 300},
                                                                          {130, 67, 129},
                                                                          {4, 6, 0}}) {
        all.push_back({m, n, k, ta, tb});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, MatrixProduct,
                         ::testing::Combine(::testing::ValuesIn(test::all_products()),
                                            ::testing::ValuesIn(shapes())),
                         [](const auto& param_info) {
                           const MatmulShape s = std::get<1>(param_info.param);
                           return test::products_name(std::get<0>(param_info.param)) + "_" +
                                  std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                                  std::to_string(s.k) + (s.transpose_a ? "_t" : "_n") +
                                  (s.transpose_b ? "t" : "n");
                         });

TEST(MatrixProductEdge, NoRowsOrColumnsIsANoOp) {
  for (const Backend backend : available_backends()) {
    float untouched = 7;
    run(Matmul<float>{{0, 3, 2}, nullptr, &untouched, &untouched, backend});
    run(Matmul<float>{{3, 0, 2}, &untouched, nullptr, &untouched, backend});
    EXPECT_EQ(untouched, 7);
  }
}

TEST(Backends, TheEnvironmentChoosesOnce) {
  EXPECT_EQ(available_backends().front(), Backend::kEigen);
  setenv("STEELYARD_CPU_BACKEND", "fortran", 1);
  EXPECT_THROW(default_backend(), std::invalid_argument);
  setenv("STEELYARD_CPU_BACKEND", "eigen", 1);
  EXPECT_EQ(default_backend(), Backend::kEigen);
  setenv("STEELYARD_CPU_BACKEND", "fortran", 1);
  EXPECT_EQ(default_backend(), Backend::kEigen);
  unsetenv("STEELYARD_CPU_BACKEND");
}

}  // namespace
}  // namespace steelyard::kernels
