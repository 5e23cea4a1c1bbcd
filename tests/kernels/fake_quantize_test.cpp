#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/conv/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/stream.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

// The definition, in plain loops; the quotient and product of T are IEEE.
template <typename T>
struct Reference {
  std::vector<T> y;
  std::vector<int> codes;
  std::vector<bool> inside;
  std::int64_t nan = 0;
};

template <typename T>
Reference<T> reference(const ChannelLayout& layout, CodeRange range, const std::vector<T>& x,
                       const std::vector<T>& scale, const std::vector<std::int32_t>& zero_point) {
  Reference<T> out;
  std::size_t i = 0;
  for (std::int64_t o = 0; o < layout.outer; ++o) {
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      for (std::int64_t k = 0; k < layout.inner; ++k, ++i) {
        const T u = std::nearbyint(x[i] / scale[c]) + static_cast<T>(zero_point[c]);
        const bool nan = std::isnan(x[i]);
        const bool low = u < static_cast<T>(range.qmin);
        const bool high = u > static_cast<T>(range.qmax);
        const int code = nan    ? zero_point[c]
                         : low  ? range.qmin
                         : high ? range.qmax
                                : static_cast<int>(u);
        out.codes.push_back(code);
        out.inside.push_back(!low && !high);
        out.y.push_back(nan ? x[i] : static_cast<T>(code - zero_point[c]) * scale[c]);
        out.nan += nan ? 1 : 0;
      }
    }
  }
  return out;
}

template <typename T>
std::vector<T> values(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<T> normal(T(0), T(4));
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& value : x) value = normal(random);
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T special[] = {T(0),
                       -T(0),
                       kInfinity,
                       -kInfinity,
                       std::numeric_limits<T>::quiet_NaN(),
                       std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::max()};
  for (std::size_t i = 0; i < x.size(); i += 37) x[i] = special[i / 37 % 7];
  return x;
}

template <typename T>
void expect_same(T actual, T expected, std::size_t i) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << "element " << i;
  } else {
    EXPECT_EQ(actual, expected) << "element " << i;
    EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << "element " << i;
  }
}

struct Parameters {
  std::vector<double> scale;
  std::vector<std::int32_t> zero_point;
};

Parameters channel_parameters(std::int64_t channels, CodeRange range) {
  Parameters p;
  for (std::int64_t c = 0; c < channels; ++c) {
    p.scale.push_back(0.01 + 0.013 * static_cast<double>(c % 17));
    p.zero_point.push_back(range.qmin +
                           static_cast<std::int32_t>((7 + 31 * c) % (range.qmax - range.qmin + 1)));
  }
  return p;
}

template <typename T, typename Code>
void check_all(const ChannelLayout& layout, CodeRange range, unsigned seed) {
  const Parameters p = channel_parameters(layout.channels, range);
  const std::vector<T> scale(p.scale.begin(), p.scale.end());
  const std::vector<T> x = values<T>(layout.size(), seed);
  const std::vector<T> grad = values<T>(layout.size(), seed + 1);
  const Reference<T> expected = reference(layout, range, x, scale, p.zero_point);
  const std::size_t n = x.size();

  std::vector<T> dequantized(n), masked(n);
  std::vector<Code> codes(n), codes_alone(n);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(mask_bytes(layout.size())), 0xFF);
  const std::int32_t* z = p.zero_point.data();
  std::int64_t nan = 5;
  run(Quantize<T, Code>{layout, range, x.data(), scale.data(), z, codes.data(), mask.data(), &nan});
  run(Quantize<T, Code>{layout, range, x.data(), scale.data(), z, codes_alone.data()});
  run(Dequantize<T, Code>{layout, codes.data(), scale.data(), z, dequantized.data()});
  run(ApplyMask<T>{layout.size(), mask.data(), grad.data(), masked.data()});

  EXPECT_EQ(nan, 5 + expected.nan);
  EXPECT_EQ(codes, codes_alone);
  for (std::size_t i = 0; i < n; ++i) {
    expect_same(masked[i], expected.inside[i] ? grad[i] : T(0), i);
    EXPECT_EQ(static_cast<int>(codes[i]), expected.codes[i]) << "element " << i;
    EXPECT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, expected.inside[i]) << "element " << i;
    if (!std::isnan(x[i])) expect_same(dequantized[i], expected.y[i], i);
  }
  EXPECT_EQ(n % 8 == 0 ? 0 : mask.back() >> (n % 8), 0) << "tail bits";
}

class FakeQuantizeLayouts
    : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, std::int64_t>> {};

using LayoutCase = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

std::string layout_label(const ::testing::TestParamInfo<LayoutCase>& test) {
  const auto [outer, channels, inner] = test.param;
  return std::to_string(outer) + "x" + std::to_string(channels) + "x" + std::to_string(inner);
}

TEST_P(FakeQuantizeLayouts, AgreesWithTheDefinition) {
  const auto [outer, channels, inner] = GetParam();
  const ChannelLayout layout{outer, channels, inner};
  check_all<float, std::uint8_t>(layout, {0, 255}, 1);
  check_all<float, std::int8_t>(layout, {-127, 127}, 2);
  check_all<float, std::int8_t>(layout, {-8, 7}, 3);
  check_all<double, std::uint8_t>(layout, {0, 15}, 4);
  check_all<double, std::int8_t>(layout, {-128, 127}, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FakeQuantizeLayouts,
    ::testing::Values(std::tuple{1, 1, 0}, std::tuple{1, 1, 1}, std::tuple{1, 1, 7},
                      std::tuple{3, 1, 11}, std::tuple{1, 1, 4099}, std::tuple{0, 3, 5},
                      std::tuple{2, 3, 0}, std::tuple{1, 0, 5}, std::tuple{100, 3, 1},
                      std::tuple{700, 64, 1}, std::tuple{3, 5000, 1}, std::tuple{5, 7, 9},
                      std::tuple{9, 16, 49}, std::tuple{3, 5, 63}, std::tuple{3, 5, 64},
                      std::tuple{2, 11, 1000}, std::tuple{1, 4, 9001}),
    layout_label);

class FakeQuantizeThreads : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(threads_); }
  const int threads_ = num_threads();
};

TEST_F(FakeQuantizeThreads, AnyNumberOfThreadsGivesTheSameBits) {
  const ChannelLayout layout{301, 37, 11};
  const Parameters p = channel_parameters(layout.channels, {0, 255});
  const std::vector<float> scale(p.scale.begin(), p.scale.end());
  const std::vector<float> x = values<float>(layout.size(), 6);
  std::vector<std::vector<std::uint8_t>> codes, masks;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    codes.emplace_back(x.size());
    masks.emplace_back(static_cast<std::size_t>(mask_bytes(layout.size())));
    run(Quantize<float, std::uint8_t>{layout,
                                      {0, 255},
                                      x.data(),
                                      scale.data(),
                                      p.zero_point.data(),
                                      codes.back().data(),
                                      masks.back().data()});
  }
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(codes[0], codes[2]);
  EXPECT_EQ(masks[0], masks[1]);
  EXPECT_EQ(masks[0], masks[2]);
}

// Arrays beyond the last-level cache take the path with non-temporal stores; unaligned on purpose.
TEST(FakeQuantizeLarge, NonTemporalStoresWriteTheSameValues) {
  std::int64_t n = 1 << 20;
  while (!exceeds_cache(5 * n) && n < 1 << 27) n *= 2;
  n += 5;
  std::vector<float> x(static_cast<std::size_t>(n + 1)), y(x.size(), -1), masked(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 6007) * 0.01F - 20.0F;
  std::vector<std::uint8_t> codes(x.size(), 0);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(mask_bytes(n)));
  const float scale = 0.11F;
  const std::int32_t zero_point = 101;
  const ChannelLayout layout = ChannelLayout::per_tensor(n);
  run(Quantize<float, std::uint8_t>{
      layout, {0, 255}, x.data() + 1, &scale, &zero_point, codes.data() + 1, mask.data()});
  run(Dequantize<float, std::uint8_t>{layout, codes.data() + 1, &scale, &zero_point, y.data() + 1});
  run(ApplyMask<float>{n, mask.data(), x.data() + 1, masked.data() + 1});
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float u = std::nearbyint(x[i + 1] / scale) + 101.0F;
    const float q = std::min(255.0F, std::max(0.0F, u));
    wrong += y[i + 1] == (q - 101.0F) * scale ? 0 : 1;
    wrong += static_cast<float>(codes[i + 1]) == q ? 0 : 1;
    wrong += ((mask[i / 8] >> (i % 8) & 1) != 0) == (u == q) ? 0 : 1;
    wrong += masked[i + 1] == (u == q ? x[i + 1] : 0) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(y[0], -1) << "written before the array";
}

bool multiplies_bf16() {
  Conv2dShape shape;
  shape.in_channels = shape.out_channels = 8;
  return reads_bf16_gradients(shape, {Backend::kOneDnn, MatmulPrecision::kBf16});
}

// One walk through memory gives the bits of two, for every number of threads; rounded ones have
// the sums of those that are not.
TEST(FakeQuantizeKernels, MaskedGradientAndItsSumsAreThoseOfTwoKernels) {
  for (const auto& [rows, channels] : std::vector<std::pair<int, int>>{
           {0, 3}, {4, 0}, {1, 1}, {3000, 1}, {301, 33}, {5, 2050}, {700, 8}, {20000, 16}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << channels);
    const std::int64_t n = std::int64_t{rows} * channels;
    const auto grad = test::random_values<float>(n, 1);
    std::mt19937 generator(2);
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(mask_bytes(n)));
    for (std::uint8_t& byte : mask) byte = static_cast<std::uint8_t>(generator());
    std::vector<float> expected(grad.size()), expected_sums(channels, 9);
    run(ApplyMask<float>{n, mask.data(), grad.data(), expected.data()});
    run(ColumnSums<float>{rows, channels, expected.data(), expected_sums.data()});
    test::expect_same_for_any_thread_count([&, rows = rows, channels = channels] {
      std::vector<float> masked(grad.size()), sums(channels, 9);
      run(ApplyMaskAndSum<float>{rows, channels, mask.data(), grad.data(), masked.data(),
                                 sums.data()});
      EXPECT_EQ(masked, expected);
      EXPECT_EQ(sums, expected_sums);
      std::vector<float> in_place = grad;
      run(ApplyMaskAndSum<float>{rows, channels, mask.data(), in_place.data(), in_place.data(),
                                 sums.data()});
      EXPECT_EQ(in_place, expected);
      EXPECT_EQ(sums, expected_sums);
      if (!multiplies_bf16()) return masked;
      std::vector<BFloat16> in_bf16(grad.size());
      run(ApplyMaskAndSum<float, BFloat16>{rows, channels, mask.data(), grad.data(), in_bf16.data(),
                                           sums.data()});
      for (std::size_t i = 0; i < masked.size(); ++i) {
        EXPECT_EQ(in_bf16[i].bits, narrow<BFloat16>(expected[i]).bits);
      }
      EXPECT_EQ(sums, expected_sums);
      return masked;
    });
  }
}

}  // namespace
}  // namespace steelyard::kernels
