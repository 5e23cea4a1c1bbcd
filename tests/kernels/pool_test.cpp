#include "steelyard/kernels/pool/pool.h"

#include <type_traits>

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

struct Window {
  const char* name;
  Conv2dShape shape;
};

std::vector<Window> windows() {
  //                                    n  h  w  c  -  kernel stride pad
  return {{"k2_stride2", per_channel({3, 8, 8, 16, 0, 2, 2, 2, 2, 0, 0})},
          {"k3_stride2_pad1", per_channel({2, 9, 8, 5, 0, 3, 3, 2, 2, 1, 1})},
          {"k3_stride1_pad1", per_channel({2, 7, 7, 33, 0, 3, 3, 1, 1, 1, 1})},
          {"asymmetric", per_channel({2, 9, 11, 3, 0, 3, 2, 2, 3, 1, 0})},
          {"gaps", per_channel({2, 10, 10, 4, 0, 2, 2, 3, 3, 0, 0})},
          {"k1", per_channel({1, 3, 5, 2, 0, 1, 1, 1, 1, 0, 0})},
          {"whole_image", per_channel({4, 6, 6, 8, 0, 6, 6, 1, 1, 0, 0})},
          {"many_rows", per_channel({4, 64, 64, 24, 0, 2, 2, 2, 2, 0, 0})}};
}

// Calls visit(output index, input index or -1 in the padding, offset inside the window).
template <class Visit>
void for_each_tap(const Conv2dShape& s, Visit&& visit) {
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oh = 0; oh < s.out_h(); ++oh)
      for (std::int64_t ow = 0; ow < s.out_w(); ++ow)
        for (std::int64_t c = 0; c < s.in_channels; ++c)
          for (std::int64_t k = 0; k < s.kernel_h * s.kernel_w; ++k) {
            const std::int64_t ih = oh * s.stride_h - s.pad_h + k / s.kernel_w;
            const std::int64_t iw = ow * s.stride_w - s.pad_w + k % s.kernel_w;
            const bool inside = ih >= 0 && ih < s.in_h && iw >= 0 && iw < s.in_w;
            visit(((n * s.out_h() + oh) * s.out_w() + ow) * s.in_channels + c,
                  inside ? ((n * s.in_h + ih) * s.in_w + iw) * s.in_channels + c : -1, k);
          }
}

class Pool : public ::testing::TestWithParam<Window> {
 protected:
  template <typename T>
  void check_max(const std::vector<T>& x) const {
    const Conv2dShape s = GetParam().shape;
    std::vector<T> y(s.output_size()), alone(s.output_size()), expected(s.output_size());
    std::vector<std::uint16_t> argmax(y.size()), winner(y.size());
    std::vector<bool> seen(y.size());
    for_each_tap(s, [&](auto o, auto i, auto k) {
      if (i < 0 || (seen[o] && !(x[i] > expected[o]))) return;
      seen[o] = true;
      expected[o] = x[i];
      winner[o] = static_cast<std::uint16_t>(k);
    });
    run(MaxPool<T>{s, x.data(), y.data(), argmax.data()});
    run(MaxPool<T>{s, x.data(), alone.data(), nullptr});
    EXPECT_EQ(y, expected);
    EXPECT_EQ(alone, expected);
    EXPECT_EQ(argmax, winner);
  }

  template <typename T>
  void check_max_backward() const {
    const Conv2dShape s = GetParam().shape;
    const auto x = random_values<T>(s.input_size(), 1), g = random_values<T>(s.output_size(), 2);
    std::vector<T> y(s.output_size()), grad_x(s.input_size(), T(99));
    std::vector<std::uint16_t> argmax(y.size());
    run(MaxPool<T>{s, x.data(), y.data(), argmax.data()});
    run(MaxPoolBackward<T>{s, g.data(), argmax.data(), grad_x.data()});
    std::vector<test::ReferenceSum> expected(grad_x.size());
    for_each_tap(s, [&](auto o, auto i, auto k) {
      if (i >= 0 && argmax[o] == k) expected[i].add(double(g[o]));
    });
    test::expect_sums(grad_x, expected);
  }

  // Window sizes, counting the padding as PyTorch does: not what lies beyond it.
  std::vector<double> divisors(bool count_include_pad) const {
    const Conv2dShape s = GetParam().shape;
    std::vector<double> counts(s.output_size());
    for_each_tap(s, [&](auto o, auto i, auto k) {
      const std::int64_t pixel = o / s.in_channels;
      const std::int64_t ih = pixel / s.out_w() % s.out_h() * s.stride_h - s.pad_h + k / s.kernel_w;
      const std::int64_t iw = pixel % s.out_w() * s.stride_w - s.pad_w + k % s.kernel_w;
      const bool padded = ih < s.in_h + s.pad_h && iw < s.in_w + s.pad_w;
      counts[o] += i >= 0 || (count_include_pad && padded) ? 1 : 0;
    });
    return counts;
  }

  template <typename T>
  void check_average(bool count_include_pad) const {
    const Conv2dShape s = GetParam().shape;
    const auto x = random_values<T>(s.input_size(), 3), g = random_values<T>(s.output_size(), 4);
    const std::vector<double> counts = divisors(count_include_pad);
    std::vector<test::ReferenceSum> forward(s.output_size()), backward(s.input_size());
    for_each_tap(s, [&](auto o, auto i, auto) {
      if (i < 0) return;
      forward[o].add(double(x[i]) / counts[o]);
      backward[i].add(double(g[o]) / counts[o]);
    });
    std::vector<T> y(s.output_size(), T(99)), grad_x(s.input_size(), T(99));
    run(AveragePool<T>{s, count_include_pad, x.data(), y.data()});
    run(AveragePoolBackward<T>{s, count_include_pad, g.data(), grad_x.data()});
    test::expect_sums(y, forward);
    test::expect_sums(grad_x, backward);
  }
};

template <typename Code>
std::vector<Code> random_codes(std::int64_t n) {
  std::vector<Code> codes;
  for (const double v : random_values<double>(n, 5)) {
    codes.push_back(
        static_cast<Code>(static_cast<int>(v * 10) + (std::is_signed_v<Code> ? 0 : 90)));
  }
  return codes;
}

TEST_P(Pool, MaxFloat) { check_max(random_values<float>(GetParam().shape.input_size(), 1)); }
TEST_P(Pool, MaxDouble) { check_max(random_values<double>(GetParam().shape.input_size(), 1)); }
TEST_P(Pool, MaxCodesWithTies) {
  check_max(random_codes<std::int8_t>(GetParam().shape.input_size()));
  check_max(random_codes<std::uint8_t>(GetParam().shape.input_size()));
}
TEST_P(Pool, MaxOfNegativeValuesIgnoresPadding) {
  std::vector<float> x = random_values<float>(GetParam().shape.input_size(), 6);
  for (float& v : x) v -= 10;
  check_max(x);
}
TEST_P(Pool, MaxBackwardFloat) { check_max_backward<float>(); }
TEST_P(Pool, MaxBackwardDouble) { check_max_backward<double>(); }
TEST_P(Pool, AverageFloat) {
  check_average<float>(false);
  check_average<float>(true);
}
TEST_P(Pool, AverageDouble) {
  check_average<double>(false);
  check_average<double>(true);
}

INSTANTIATE_TEST_SUITE_P(All, Pool, ::testing::ValuesIn(windows()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(MaxPool, TheFirstNanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1,   nan, inf, nan,  // one channel, 2x2 windows side by side
                                nan, 2,   3,   -inf};
  const Conv2dShape s = per_channel({1, 2, 4, 1, 0, 2, 2, 2, 2, 0, 0});
  std::vector<float> y(2);
  std::vector<std::uint16_t> argmax(2);
  run(MaxPool<float>{s, x.data(), y.data(), argmax.data()});
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(argmax, (std::vector<std::uint16_t>{1, 1}));
  run(MaxPool<float>{s, x.data(), y.data(), nullptr});
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
}

TEST(MaxPool, MinusInfinityIsAValue) {
  const std::vector<float> x(4, -std::numeric_limits<float>::infinity());
  float y = 0;
  std::uint16_t argmax = 9;
  run(MaxPool<float>{per_channel({1, 2, 2, 1, 0, 2, 2, 2, 2, 0, 0}), x.data(), &y, &argmax});
  EXPECT_EQ(y, x[0]);
  EXPECT_EQ(argmax, 0);
}

template <typename T>
void check_global_average(std::int64_t batch, std::int64_t pixels, std::int64_t channels) {
  const auto x = random_values<T>(batch * pixels * channels, 1);
  const auto g = random_values<T>(batch * channels, 2);
  std::vector<T> y(batch * channels), grad_x(x.size());
  run(GlobalAveragePool<T>{batch, pixels, channels, x.data(), y.data()});
  run(GlobalAveragePoolBackward<T>{batch * pixels, channels, pixels, g.data(), grad_x.data()});
  std::vector<test::ReferenceSum> forward(y.size()), backward(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t o = i / (pixels * channels) * channels + i % channels;
    forward[o].add(double(x[i]) / double(pixels));
    backward[i].add(double(g[o]) / double(pixels));
  }
  test::expect_sums(y, forward);
  test::expect_sums(grad_x, backward);
}

TEST(GlobalAveragePool, MatchesLoops) {
  for (const auto& [pixels, channels] :
       std::vector<std::pair<int, int>>{{1, 1}, {7, 3}, {49, 64}, {64, 17}, {300, 130}}) {
    check_global_average<float>(5, pixels, channels);
    check_global_average<double>(5, pixels, channels);
  }
}

}  // namespace
}  // namespace steelyard::kernels
