#include "steelyard/kernels/norm/norm.h"

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

struct Size {
  std::int64_t rows, channels;
};

std::string size_name(const ::testing::TestParamInfo<Size>& param_info) {
  return std::to_string(param_info.param.rows) + "x" + std::to_string(param_info.param.channels);
}

std::vector<Size> sizes() {
  return {{1, 1},    {2, 3},      {7, 5},    {64, 16},   {1000, 1},
          {4097, 3}, {20000, 16}, {777, 33}, {300, 200}, {3000, 128}};
}

// Two passes in long double.
template <typename T>
void reference_moments(Size size, const std::vector<T>& x, std::vector<double>& mean,
                       std::vector<double>& variance) {
  mean.assign(size.channels, 0);
  variance.assign(size.channels, 0);
  for (std::int64_t c = 0; c < size.channels; ++c) {
    long double sum = 0, squares = 0;
    for (std::int64_t r = 0; r < size.rows; ++r) sum += x[r * size.channels + c];
    const long double m = sum / size.rows;
    for (std::int64_t r = 0; r < size.rows; ++r) {
      squares += (x[r * size.channels + c] - m) * (x[r * size.channels + c] - m);
    }
    mean[c] = double(m);
    variance[c] = double(squares / size.rows);
  }
}

template <typename T>
void check_moments(Size size, const std::vector<T>& x, double tolerance) {
  std::vector<T> mean(size.channels), variance(size.channels);
  std::vector<double> expected_mean, expected_variance;
  run(BatchMoments<T>{size.rows, size.channels, x.data(), mean.data(), variance.data()});
  reference_moments(size, x, expected_mean, expected_variance);
  for (std::int64_t c = 0; c < size.channels; ++c) {
    const double deviation = std::sqrt(expected_variance[c]);
    EXPECT_NEAR(double(mean[c]), expected_mean[c],
                tolerance * (deviation + std::abs(expected_mean[c])))
        << "channel " << c;
    EXPECT_NEAR(double(variance[c]), expected_variance[c], tolerance * expected_variance[c] + 1e-30)
        << "channel " << c;
  }
}

class BatchNormKernels : public ::testing::TestWithParam<Size> {};

TEST_P(BatchNormKernels, Moments) {
  const Size size = GetParam();
  const std::int64_t n = size.rows * size.channels;
  check_moments(size, random_values<float>(n, 1), 1e-6);
  check_moments(size, random_values<double>(n, 1), 1e-13);
}

TEST_P(BatchNormKernels, VarianceSurvivesALargeMean) {
  const Size size = GetParam();
  auto x = random_values<float>(size.rows * size.channels, 2);
  for (float& v : x) v = 10000 + v;
  check_moments(size, x, 1e-6);
}

TEST_P(BatchNormKernels, VarianceSurvivesAnOutlierInTheFirstRow) {
  const Size size = GetParam();
  auto x = random_values<float>(size.rows * size.channels, 3);
  for (std::int64_t c = 0; c < size.channels; ++c) x[c] = 1e4F;
  check_moments(size, x, 1e-6);
}

TEST_P(BatchNormKernels, ConstantChannelsHaveZeroVariance) {
  const Size size = GetParam();
  const std::vector<float> x(size.rows * size.channels, 0.1F);
  std::vector<float> mean(size.channels), variance(size.channels, 9);
  run(BatchMoments<float>{size.rows, size.channels, x.data(), mean.data(), variance.data()});
  EXPECT_EQ(mean, std::vector<float>(size.channels, 0.1F));
  for (const float v : variance) EXPECT_NEAR(v, 0, 1e-16);
}

// y = batch_norm(x) with the statistics of x, from the public kernels, and its parameters.
struct Example {
  explicit Example(Size size)
      : rows(size.rows),
        channels(size.channels),
        x(random_values<double>(rows * channels, 4)),
        g(random_values<double>(rows * channels, 5)),
        gamma(random_values<double>(channels, 6)),
        beta(random_values<double>(channels, 7)),
        mean(channels),
        inv_std(channels) {
    update_statistics();
  }
  void update_statistics() {
    std::vector<double> variance(channels);
    run(BatchMoments<double>{rows, channels, x.data(), mean.data(), variance.data()});
    for (std::int64_t c = 0; c < channels; ++c) inv_std[c] = 1 / std::sqrt(variance[c] + 1e-2);
  }
  std::vector<double> forward() const {
    std::vector<double> y(x.size()), slope(channels);
    for (std::int64_t c = 0; c < channels; ++c) slope[c] = inv_std[c] * gamma[c];
    run(BatchNorm<double>{rows, channels, x.data(), mean.data(), slope.data(), beta.data(),
                          y.data()});
    return y;
  }
  double loss() const {
    const std::vector<double> y = forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
    return sum;
  }

  std::int64_t rows, channels;
  std::vector<double> x, g, gamma, beta, mean, inv_std;
};

TEST_P(BatchNormKernels, Forward) {
  Example e(GetParam());
  const std::vector<double> y = e.forward();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i % e.channels;
    ASSERT_NEAR(y[i], (e.x[i] - e.mean[c]) * e.inv_std[c] * e.gamma[c] + e.beta[c], 1e-13);
  }
}

TEST_P(BatchNormKernels, BackwardTrainingMatchesFiniteDifferences) {
  Example e(GetParam());
  std::vector<double> grad_x(e.x.size()), grad_gamma(e.channels), grad_beta(e.channels);
  run(BatchNormBackward<double>{e.rows, e.channels, true, e.x.data(), e.g.data(), e.mean.data(),
                                e.inv_std.data(), e.gamma.data(), grad_x.data(), grad_gamma.data(),
                                grad_beta.data()});
  const auto difference = [&e](double& value) {
    const double kept = value, h = 1e-5;
    value = kept + h;
    e.update_statistics();
    const double above = e.loss();
    value = kept - h;
    e.update_statistics();
    const double below = e.loss();
    value = kept;
    e.update_statistics();
    return (above - below) / (2 * h);
  };
  const std::size_t step = std::max<std::size_t>(1, e.x.size() / 17);
  for (std::size_t i = 0; i < e.x.size(); i += step) {
    EXPECT_NEAR(grad_x[i], difference(e.x[i]), 2e-6) << "x " << i;
  }
  for (std::int64_t c = 0; c < e.channels; c += std::max<std::int64_t>(1, e.channels / 5)) {
    EXPECT_NEAR(grad_gamma[c], difference(e.gamma[c]), 2e-6) << "gamma " << c;
    EXPECT_NEAR(grad_beta[c], difference(e.beta[c]), 2e-6) << "beta " << c;
  }
}

// Closed form in double, applied to float data.
TEST_P(BatchNormKernels, BackwardFloatMatchesTheClosedForm) {
  const auto [rows, channels] = GetParam();
  const std::int64_t n = rows * channels;
  const auto x = random_values<float>(n, 1), g = random_values<float>(n, 2);
  const auto mean = random_values<float>(channels, 3), gamma = random_values<float>(channels, 4);
  const std::vector<float> inv_std(channels, 1.5F);
  std::vector<float> trained(n), frozen(n), grad_gamma(channels), grad_beta(channels);
  run(BatchNormBackward<float>{rows, channels, true, x.data(), g.data(), mean.data(),
                               inv_std.data(), gamma.data(), trained.data(), grad_gamma.data(),
                               grad_beta.data()});
  std::vector<test::ReferenceSum> sum_g(channels), sum_gx(channels);
  for (std::int64_t i = 0; i < n; ++i) {
    sum_g[i % channels].add(double(g[i]));
    sum_gx[i % channels].add(double(g[i]) * (double(x[i]) - double(mean[i % channels])) * 1.5);
  }
  test::expect_sums(grad_gamma, sum_gx);
  test::expect_sums(grad_beta, sum_g);
  const std::vector<float> trained_gamma = grad_gamma;
  run(BatchNormBackward<float>{rows, channels, false, x.data(), g.data(), mean.data(),
                               inv_std.data(), gamma.data(), frozen.data(), grad_gamma.data(),
                               grad_beta.data()});
  EXPECT_EQ(grad_gamma, trained_gamma);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t c = i % channels;
    const double xhat = (double(x[i]) - double(mean[c])) * 1.5, slope = 1.5 * double(gamma[c]);
    const double expected = slope * (double(g[i]) - sum_g[c].value / double(rows) -
                                     xhat * sum_gx[c].value / double(rows));
    ASSERT_NEAR(trained[i], expected, 5e-6) << i;
    ASSERT_NEAR(frozen[i], slope * double(g[i]), 1e-6) << i;
  }
}

TEST_P(BatchNormKernels, NullGradXStillGivesParameterGradients) {
  Example e(GetParam());
  std::vector<double> grad_x(e.x.size()), gamma1(e.channels), beta1(e.channels);
  std::vector<double> gamma2(e.channels), beta2(e.channels);
  for (const bool training : {true, false}) {
    const auto backward = [&](double* gx, double* gg, double* gb) {
      run(BatchNormBackward<double>{e.rows, e.channels, training, e.x.data(), e.g.data(),
                                    e.mean.data(), e.inv_std.data(), e.gamma.data(), gx, gg, gb});
    };
    backward(grad_x.data(), gamma1.data(), beta1.data());
    backward(nullptr, gamma2.data(), beta2.data());
    EXPECT_EQ(gamma1, gamma2);
    EXPECT_EQ(beta1, beta2);
  }
}

TEST_P(BatchNormKernels, DoesNotDependOnTheThreadCount) {
  const auto [rows, channels] = GetParam();
  const auto x = random_values<float>(rows * channels, 1);
  const auto g = random_values<float>(rows * channels, 2);
  test::expect_same_for_any_thread_count([&, r = rows, c = channels] {
    std::vector<float> mean(c), variance(c), grad_x(r * c), grad_gamma(c), grad_beta(c);
    run(BatchMoments<float>{r, c, x.data(), mean.data(), variance.data()});
    run(BatchNormBackward<float>{r, c, true, x.data(), g.data(), mean.data(), variance.data(),
                                 mean.data(), grad_x.data(), grad_gamma.data(), grad_beta.data()});
    return std::vector<std::vector<float>>{mean, variance, grad_x, grad_gamma, grad_beta};
  });
}

TEST(BatchNormStatistics, MoveAndInvertInDouble) {
  const std::vector<float> variance{0.0F, 3.0F, 1e-30F};
  const std::vector<float> gamma{3.0F, -2.0F, 0.0F};
  std::vector<float> inverse(3), slope(3);
  run(InverseStd<float>{3, variance.data(), gamma.data(), 1.0, inverse.data(), slope.data()});
  EXPECT_EQ(inverse, (std::vector<float>{1.0F, 0.5F, 1.0F}));
  EXPECT_EQ(slope, (std::vector<float>{3.0F, -1.0F, 0.0F}));
  const std::vector<float> mean{4.0F, -8.0F, 0.0F};
  std::vector<double> running_mean{8.0, -4.0, 0.0}, running_variance = running_mean;
  run(MoveRunningStatistics<float, double>{3, 0.25, 2.0, mean.data(), variance.data(),
                                           running_mean.data(), running_variance.data()});
  EXPECT_EQ(running_mean, (std::vector<double>{7.0, -5.0, 0.0}));
  EXPECT_EQ(running_variance, (std::vector<double>{6.0, -1.5, 0.5 * double{1e-30F}}));
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormKernels, ::testing::ValuesIn(sizes()), size_name);

}  // namespace
}  // namespace steelyard::kernels
