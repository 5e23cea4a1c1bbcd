#include "steelyard/kernels/layer_norm/layer_norm.h"

#include <cmath>

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

template <typename T>
class LayerNormKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNormKernel, Types);

// Gradients: Ba et al., 2016; dx = (g - mean(g) - n * mean(g * n)) * inv_std, g = dy * gamma.
TYPED_TEST(LayerNormKernel, AgreesWithPlainLoops) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 1e-12;
  for (const auto& [rows, columns] :
       std::vector<std::pair<int, int>>{{0, 4}, {1, 1}, {3, 5}, {700, 16}, {40, 300}}) {
    const auto x = random_values<T>(rows * columns, 1), dy = random_values<T>(rows * columns, 2);
    const auto gamma = random_values<T>(columns, 3), beta = random_values<T>(columns, 4);
    std::vector<T> y(x.size()), mean(rows), inv_std(rows), dx(x.size()), dgamma(columns),
        dbeta(columns);
    run(LayerNorm<T>{rows, columns, x.data(), gamma.data(), beta.data(), 1e-3, y.data(),
                     mean.data(), inv_std.data()});
    run(LayerNormBackward<T>{rows, columns, x.data(), dy.data(), mean.data(), inv_std.data(),
                             gamma.data(), dx.data()});
    run(LayerNormParameterGradients<T>{rows, columns, x.data(), dy.data(), mean.data(),
                                       inv_std.data(), dgamma.data(), dbeta.data()});
    std::vector<double> expected_gamma(columns), expected_beta(columns);
    for (int r = 0; r < rows; ++r) {
      const T* row = x.data() + r * columns;
      double m = 0, v = 0, mean_g = 0, mean_gn = 0;
      for (int c = 0; c < columns; ++c) m += double(row[c]) / columns;
      for (int c = 0; c < columns; ++c) v += (row[c] - m) * (row[c] - m) / columns;
      const double s = 1 / std::sqrt(v + 1e-3);
      for (int c = 0; c < columns; ++c) {
        const double n = (row[c] - m) * s, g = double(dy[r * columns + c]) * gamma[c];
        ASSERT_NEAR(y[r * columns + c], n * gamma[c] + beta[c], tolerance);
        mean_g += g / columns;
        mean_gn += g * n / columns;
        expected_gamma[c] += dy[r * columns + c] * n;
        expected_beta[c] += dy[r * columns + c];
      }
      for (int c = 0; c < columns; ++c) {
        const double n = (row[c] - m) * s, g = double(dy[r * columns + c]) * gamma[c];
        ASSERT_NEAR(dx[r * columns + c], (g - mean_g - n * mean_gn) * s, tolerance * (1 + s));
      }
    }
    for (int c = 0; c < columns; ++c) {
      ASSERT_NEAR(dgamma[c], expected_gamma[c], tolerance * (1 + rows));
      ASSERT_NEAR(dbeta[c], expected_beta[c], tolerance * (1 + rows));
    }
    std::vector<T> alone(columns);
    run(LayerNormParameterGradients<T>{rows, columns, x.data(), dy.data(), mean.data(),
                                       inv_std.data(), nullptr, alone.data()});
    EXPECT_EQ(alone, dbeta);
  }
}

}  // namespace
}  // namespace steelyard::kernels
