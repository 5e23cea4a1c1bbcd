#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/losses/losses.h"

#include "steelyard/kernels/optimizer_step/optimizer_step.h"
#include "steelyard/kernels/transpose/transpose.h"
#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

const std::vector<std::int64_t> kSizes = {0, 1, 3, 17, 1000, 70001};

template <typename T>
class Elementwise : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

// Sums of [outer, summed, inner] over its middle axis, and over its last two.
TYPED_TEST(Elementwise, SumsOverAxesAreThoseInOrder) {
  using T = TypeParam;
  for (const std::int64_t outer : {1, 3}) {
    for (const std::int64_t inner : {1, 2, 63, 64, 65, 200}) {
      constexpr std::int64_t kSummed = 7;
      const auto x = random_values<T>(outer * kSummed * inner, 5);
      std::vector<T> middle(outer * inner), rest(outer);
      const StridedIndex kept{2, {outer, inner}, {kSummed * inner, 1}};
      run(SumOverAxes<T>{
          outer * inner, x.data(), kept, kSummed, {1, {kSummed}, {inner}}, middle.data()});
      run(SumOverAxes<T>{outer,
                         x.data(),
                         {1, {outer}, {kSummed * inner}},
                         kSummed * inner,
                         {1, {kSummed * inner}, {1}},
                         rest.data()});
      for (std::int64_t o = 0; o < outer; ++o) {
        const T* const row = x.data() + o * kSummed * inner;
        double of_row = 0;
        for (std::int64_t i = 0; i < kSummed * inner; ++i) of_row += static_cast<double>(row[i]);
        ASSERT_EQ(rest[o], static_cast<T>(of_row));
        for (std::int64_t i = 0; i < inner; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < kSummed; ++j) {
            sum += static_cast<double>(row[j * inner + i]);
          }
          ASSERT_EQ(middle[o * inner + i], static_cast<T>(sum));
        }
      }
    }
  }
}

TYPED_TEST(Elementwise, Arithmetic) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    std::vector<T> sum(n), product(n), scaled(n), constant(n), in_place = a;
    run(Add<T>{n, a.data(), b.data(), sum.data()});
    const StridedIndex dense{1, {n}, {1}};
    run(Combine<T, Product>{n, a.data(), dense, b.data(), dense, product.data()});
    run(Scale<T>{n, a.data(), T(3), scaled.data()});
    run(Fill<T>{n, T(7), constant.data()});
    run(Add<T>{n, in_place.data(), b.data(), in_place.data()});
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
      ASSERT_EQ(scaled[i], a[i] * T(3));
      ASSERT_EQ(constant[i], T(7));
    }
    EXPECT_EQ(in_place, sum);
  }
}

// Runs along the last axis are what the kernel does element by element, for operands that repeat
// along any axes, stride over some or lie in another order, whatever part of them a thread has.
TYPED_TEST(Elementwise, OperandsThatBroadcast) {
  using T = TypeParam;
  constexpr std::int64_t kRows = 70, kPixels = 9, kChannels = 21;
  constexpr std::int64_t kSize = kRows * kPixels * kChannels;
  const auto a = random_values<T>(2 * kSize, 1), b = random_values<T>(2 * kSize, 2);
  const std::vector<StridedIndex> places = {
      {},
      {1, {kSize}, {1}},
      {1, {kSize}, {0}},
      {1, {kSize}, {2}},
      {2, {kRows * kPixels, kChannels}, {0, 1}},
      {2, {kRows, kPixels * kChannels}, {1, 0}},
      {3, {kRows, kPixels, kChannels}, {kChannels, 0, 1}},
      {3, {kRows, kPixels, kChannels}, {kPixels * kChannels, 1, kPixels}},
      {3, {kRows, kPixels, kChannels}, {0, 1, 0}}};
  for (const StridedIndex& at_a : places) {
    for (const StridedIndex& at_b : places) {
      std::vector<T> expected(kSize);
      const Combine<T, Difference> kernel{kSize, a.data(), at_a, b.data(), at_b, expected.data()};
      for (std::int64_t i = 0; i < kSize; ++i) kernel(i);
      for (const int threads : {1, 3}) {
        const test::ThreadCount guard(threads);
        std::vector<T> y(kSize);
        run(Combine<T, Difference>{kSize, a.data(), at_a, b.data(), at_b, y.data()});
        EXPECT_EQ(y, expected);
      }
    }
  }
}

// Products of codes that no reference rounds: 22 bits and a power of two.
TEST(MultiplyCodes, OfChannelsAreExact) {
  constexpr std::int64_t kPixels = 300, kChannels = 24, kSize = kPixels * kChannels;
  std::vector<std::uint8_t> a(kSize);
  std::vector<std::int8_t> b(kChannels);
  for (std::int64_t i = 0; i < kSize; ++i) a[i] = static_cast<std::uint8_t>(7 * i);
  for (std::int64_t c = 0; c < kChannels; ++c) b[c] = static_cast<std::int8_t>(11 * c - 120);
  const float scale_a = 0.5F, scale_b = 0.25F, scale = 4;
  const std::int32_t zero_a = 100, zero_b = -3;
  for (const float* const to : {static_cast<const float*>(nullptr), &scale}) {
    std::vector<float> y(kSize);
    run(MultiplyCodes<std::uint8_t, std::int8_t>{kSize,
                                                 {a.data(), &scale_a, &zero_a},
                                                 {1, {kSize}, {1}},
                                                 {b.data(), &scale_b, &zero_b},
                                                 {2, {kPixels, kChannels}, {0, 1}},
                                                 to,
                                                 y.data()});
    for (std::int64_t i = 0; i < kSize; ++i) {
      const int product = (a[i] - zero_a) * (b[i % kChannels] - zero_b);
      ASSERT_EQ(y[i], static_cast<float>(product) / (to == nullptr ? 8.0F : 32.0F)) << i;
    }
  }
}

TYPED_TEST(Elementwise, Relu) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x = {-inf, -2, T(-0.0), 0, 1, 6, 7, inf, nan}, g(9, T(5));
  std::vector<T> y(9), grad(9);
  run(Relu<T>{9, x.data(), inf, y.data()});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], std::max(x[i], T(0))) << i;
  EXPECT_FALSE(std::signbit(y[2]));
  EXPECT_TRUE(std::isnan(y[8]));
  run(ReluBackward<T>{9, y.data(), g.data(), inf, grad.data()});
  EXPECT_EQ(grad, (std::vector<T>{0, 0, 0, 0, 5, 5, 5, 0, 5}));

  run(Relu<T>{9, x.data(), T(6), y.data()});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], std::min(std::max(x[i], T(0)), T(6))) << i;
  EXPECT_TRUE(std::isnan(y[8]));
  run(ReluBackward<T>{9, y.data(), g.data(), T(6), grad.data()});
  EXPECT_EQ(grad, (std::vector<T>{0, 0, 0, 0, 5, 0, 0, 0, 5}));
}

TYPED_TEST(Elementwise, CopiesColumnsOfWiderRows) {
  using T = TypeParam;
  for (const std::int64_t rows : {0, 1, 3, 20000}) {
    for (const std::int64_t columns : {0, 1, 5}) {
      const auto x = random_values<T>(rows * 7, 1);
      std::vector<T> y(rows * 6, T(9));
      run(CopyColumns<T>{rows, columns, x.data() + 2, 7, y.data() + 1, 6});
      for (std::int64_t i = 0; i < rows * 6; ++i) {
        const std::int64_t c = i % 6 - 1;
        ASSERT_EQ(y[i], c >= 0 && c < columns ? x[i / 6 * 7 + 2 + c] : T(9));
      }
    }
  }
}

TYPED_TEST(Elementwise, BiasAndColumnSums) {
  using T = TypeParam;
  for (const auto& [rows, channels] : std::vector<std::pair<int, int>>{
           {0, 4}, {1, 1}, {5, 3}, {1000, 1}, {4099, 10}, {300, 257}, {20000, 16}}) {
    const auto x = random_values<T>(rows * channels, 1), bias = random_values<T>(channels, 2);
    std::vector<T> y(x.size()), in_place = x, sums(channels, T(99));
    run(AddBias<T>{rows, channels, x.data(), bias.data(), y.data()});
    run(AddBias<T>{rows, channels, in_place.data(), bias.data(), in_place.data()});
    run(ColumnSums<T>{rows, channels, x.data(), sums.data()});
    std::vector<test::ReferenceSum> expected(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i], x[i] + bias[i % channels]);
      expected[i % channels].add(double(x[i]));
    }
    EXPECT_EQ(in_place, y);
    test::expect_sums(sums, expected);
  }
}

TYPED_TEST(Elementwise, HuberIsSquaredUpToDeltaAndThenLinear) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> a = {0, 1, -1, T(2.5), -4}, b(5, T(0)), bad = {0, nan, 0, 0, 0};
  std::vector<T> grad(5);
  // 0, 0.5, 0.5, 2 * 2.5 - 2, 2 * 4 - 2 with delta 2.
  T mean = 0;
  run(MeanLoss<T, HuberError>{5, a.data(), b.data(), {2}, &mean});
  run(MeanLossBackward<T, HuberError>{5, a.data(), b.data(), {2}, grad.data()});
  EXPECT_EQ(mean, T((1 + 3.0 + 6.0) / 5));
  EXPECT_EQ(grad, (std::vector<T>{0, T(0.2), T(-0.2), T(0.4), T(-0.4)}));
  run(MeanLoss<T, HuberError>{5, bad.data(), b.data(), {2}, &mean});
  run(MeanLossBackward<T, HuberError>{5, bad.data(), b.data(), {2}, grad.data()});
  EXPECT_TRUE(std::isnan(mean));
  EXPECT_TRUE(std::isnan(grad[1]));
}

TYPED_TEST(Elementwise, SumsInDouble) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    auto a = random_values<T>(n, 1);
    const auto b = random_values<T>(n, 2);
    double squares = 0, errors = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      squares += double(a[i]) * double(a[i]);
      errors += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
    }
    const std::vector<ValueTensor<T>> parts = {{n / 3, a.data()}, {n - n / 3, a.data() + n / 3}};
    double sum = -1;
    run(SumOfSquares<T>{parts, &sum});
    EXPECT_NEAR(sum, squares, 1e-12 * squares);
    if (n == 0) continue;
    std::vector<T> grad(n);
    const double expected = errors / double(n);
    T mean = 0;
    run(MeanLoss<T, SquaredError>{n, a.data(), b.data(), {}, &mean});
    run(MeanLossBackward<T, SquaredError>{n, a.data(), b.data(), {}, grad.data()});
    EXPECT_NEAR(double(mean), expected,
                expected * std::max(1e-12, double(std::numeric_limits<T>::epsilon())));
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(double(grad[i]), 2 * (double(a[i]) - double(b[i])) / double(n),
                  4 * std::numeric_limits<T>::epsilon() / double(n));
    }
  }
}

TEST(SumOfSquares, DoesNotOverflowInFloat) {
  std::vector<float> x(100, 1e30F);
  const std::vector<ValueTensor<float>> all = {{100, x.data()}};
  double sum = 0;
  run(SumOfSquares<float>{all, &sum});
  EXPECT_NEAR(sum, 1e62, 1e56);
}

TYPED_TEST(Elementwise, CountNonFinite) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (const std::int64_t n : kSizes) {
    std::vector<T> x(n, std::numeric_limits<T>::max());
    std::int64_t count = -1;
    run(CountNonFinite<T>{n, x.data(), &count});
    EXPECT_EQ(count, 0);
    if (n < 3) continue;
    x[0] = nan;
    x[n / 2] = -inf;
    x[n - 1] = inf;
    run(CountNonFinite<T>{n, x.data(), &count});
    EXPECT_EQ(count, 3);
    std::fill(x.begin(), x.end(), nan);
    run(CountNonFinite<T>{n, x.data(), &count});
    EXPECT_EQ(count, n);
  }
}

TYPED_TEST(Elementwise, SumsDoNotDependOnTheThreadCount) {
  using T = TypeParam;
  auto a = random_values<T>(200003, 1);
  const auto b = random_values<T>(200003, 2);
  const std::vector<ValueTensor<T>> whole = {{200003, a.data()}};
  test::expect_same_for_any_thread_count([&] {
    std::vector<T> sums(13);
    run(ColumnSums<T>{15384, 13, a.data(), sums.data()});
    std::vector<double> all(sums.begin(), sums.end());
    double squares = 0;
    run(SumOfSquares<T>{whole, &squares});
    all.push_back(squares);
    T mean = 0;
    run(MeanLoss<T, SquaredError>{200003, a.data(), b.data(), {}, &mean});
    all.push_back(double(mean));
    return all;
  });
}

template <typename T>
void check_layout(std::int64_t batch, std::int64_t pixels, std::int64_t channels) {
  std::vector<T> x(batch * pixels * channels), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i % 251);
  run(Transpose<T>{batch, pixels, channels, x.data(), y.data()});
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t p = 0; p < pixels; ++p) {
      for (std::int64_t c = 0; c < channels; ++c) {
        ASSERT_EQ(y[(n * channels + c) * pixels + p], x[(n * pixels + p) * channels + c]);
      }
    }
  }
  if constexpr (sizeof(T) > 1) {
    std::vector<T> back(x.size());
    run(Transpose<T>{batch, channels, pixels, y.data(), back.data()});
    EXPECT_EQ(back, x);
  }
}

TEST(Layout, NhwcAndNchw) {
  for (const auto& [pixels, channels] : std::vector<std::pair<int, int>>{
           {1, 1}, {49, 3}, {16, 16}, {33, 65}, {784, 1}, {0, 4}, {4100, 2}, {5000, 4}}) {
    check_layout<float>(3, pixels, channels);
    check_layout<double>(3, pixels, channels);
    check_layout<std::int8_t>(3, pixels, channels);
    check_layout<std::uint8_t>(3, pixels, channels);
  }
}

// y = x * *factor, the mix of two, an exchange of bytes.
TYPED_TEST(Elementwise, ScalesMixesAndSwaps) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    std::vector<T> scaled(n), mixed_values(n), first = a, second = b;
    const T factor = T(0.3);
    run(ScaleBy<T>{n, a.data(), &factor, scaled.data()});
    run(Mix<T>{n, 0.25, a.data(), b.data(), mixed_values.data()});
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(scaled[i], a[i] * factor);
      ASSERT_EQ(mixed_values[i], T(0.75 * double(a[i]) + 0.25 * double(b[i])));
    }
    run(Swap<T>{n, first.data(), second.data()});
    EXPECT_EQ(first, b);
    EXPECT_EQ(second, a);
    double sum = 1;
    if (n == 0) continue;
    run(AddWeighted<T>{a.data(), 3, &sum});
    EXPECT_EQ(sum, 1 + 3 * double(a[0]));
  }
}

}  // namespace
}  // namespace steelyard::kernels
