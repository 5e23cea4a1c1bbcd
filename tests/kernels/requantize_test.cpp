// Requantization against scalar formulas written out anew; free of contraction by construction
// because every product is stored in a volatile float.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/requantize/requantize.h"

namespace steelyard::kernels {
namespace {

float product(float a, float b) {
  const volatile float rounded = a * b;
  return rounded;
}
float sum(float a, float b) {
  const volatile float rounded = a + b;
  return rounded;
}

// a * b + c rounded once: the product and the sum are exact in double for codes and zero points.
float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b + c);
}

struct Expected {
  int code;
  bool passes;
  float real;
};

// From the unclamped code and the real value before the activation.
Expected finish(float unclamped, float real, Activation activation, float scale, int zero_point,
                CodeRange range) {
  const bool relu = activation != Activation::kNone;
  const bool six = activation == Activation::kRelu6;
  int low = range.qmin;
  int high = range.qmax;
  if (relu) low = std::max(low, zero_point);
  if (six) high = std::min(high, static_cast<int>(std::nearbyint(6.0F / scale)) + zero_point);
  const double clamped =
      std::min<double>(high, std::max<double>(low, static_cast<double>(unclamped)));
  const bool inside =
      unclamped >= static_cast<float>(range.qmin) && unclamped <= static_cast<float>(range.qmax);
  const bool linear = (!relu || real > 0) && (!six || real < 6);
  if (relu) real = std::max(real, 0.0F);
  if (six) real = std::min(real, 6.0F);
  return {static_cast<int>(clamped), inside && linear, real};
}

struct Accumulators {
  std::int64_t rows;
  std::int64_t channels;
  std::vector<std::int32_t> acc;
  std::vector<std::int32_t> bias;
  std::vector<float> product_scale;

  Accumulators(std::int64_t r, std::int64_t c, unsigned seed) : rows(r), channels(c) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<std::int32_t> value(-40000, 40000);
    std::uniform_real_distribution<float> scale(1e-5F, 9e-4F);
    for (std::int64_t i = 0; i < rows * channels; ++i) acc.push_back(value(random));
    for (std::int64_t i = 0; i < channels; ++i) bias.push_back(value(random) / 8);
    for (std::int64_t i = 0; i < channels; ++i) product_scale.push_back(scale(random));
    if (acc.size() > 2) acc[0] = 1 << 30, acc[1] = -(1 << 30), acc[2] = 16777217;
    for (std::size_t i = 5; i < acc.size(); i += 41) {  // a sum of exactly zero
      acc[i] = -bias[i % static_cast<std::size_t>(channels)];
    }
  }
};

template <typename Code>
void check_requantize(const Accumulators& a, Activation activation, bool with_bias, float scale,
                      int zero_point, CodeRange range) {
  const Requantize op{a.rows, a.channels, activation};
  const std::int32_t* bias = with_bias ? a.bias.data() : nullptr;
  const float* scales = a.product_scale.data();
  const std::int32_t zero = zero_point;
  const std::size_t n = a.acc.size();
  std::vector<Code> codes(n), codes_alone(n);
  std::vector<float> real(n);
  std::vector<std::uint8_t> mask((n + 7) / 8, 0xFF);
  run(RequantizeAccumulators<Code>{op, a.acc.data(), bias, scales, &scale, &zero, range,
                                   codes.data(), mask.data()});
  run(RequantizeAccumulators<Code>{op, a.acc.data(), bias, scales, &scale, &zero, range,
                                   codes_alone.data(), nullptr});
  run(DequantizeAccumulators{op.rows, op.channels, op.activation, a.acc.data(), bias, scales,
                             real.data()});
  float lo = 0, hi = 0, range_scale = 0, pass_scale = 0;
  std::int32_t range_zero = 0, pass_zero = 0;
  std::uint8_t zero_range = 0;
  std::int64_t non_finite = 0;
  run(ObserveAccumulators{{.restarts = true},
                          {&lo, &hi, nullptr, &range_scale, &range_zero, &zero_range, &non_finite,
                           &pass_scale, &pass_zero},
                          op,
                          a.acc.data(),
                          bias,
                          scales});
  EXPECT_EQ(non_finite, 0);
  float want_lo = std::numeric_limits<float>::infinity(), want_hi = -want_lo;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t c = i % static_cast<std::size_t>(a.channels);
    const std::int32_t total = a.acc[i] + (with_bias ? a.bias[c] : 0);
    const float multiplier = a.product_scale[c] / scale;
    const float unclamped = std::nearbyint(product(static_cast<float>(total), multiplier)) +
                            static_cast<float>(zero_point);
    const float value = product(static_cast<float>(total), a.product_scale[c]);
    const Expected want = finish(unclamped, value, activation, scale, zero_point, range);
    ASSERT_EQ(static_cast<int>(codes[i]), want.code) << "element " << i;
    ASSERT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, want.passes) << "element " << i;
    ASSERT_EQ(real[i], want.real) << "element " << i;
    want_lo = std::min(want_lo, want.real);
    want_hi = std::max(want_hi, want.real);
  }
  EXPECT_EQ(codes, codes_alone);
  EXPECT_EQ(lo, want_lo);
  EXPECT_EQ(hi, want_hi);
  EXPECT_EQ(n % 8 == 0 ? 0 : mask.back() >> (n % 8), 0) << "tail bits";
}

class RequantizeActivations : public ::testing::TestWithParam<Activation> {};

std::string activation_label(const ::testing::TestParamInfo<Activation>& test) {
  return test.param == Activation::kNone   ? "none"
         : test.param == Activation::kRelu ? "relu"
                                           : "relu6";
}

TEST_P(RequantizeActivations, ProductsAgreeWithScalarLoops) {
  for (const auto& [rows, channels] : {std::pair<int, int>{0, 4},
                                       {1, 1},
                                       {1000, 1},
                                       {301, 3},
                                       {1, 12},
                                       {7, 12},
                                       {77, 64},
                                       {40, 300},
                                       {3, 5000}}) {
    const Accumulators a(rows, channels, 1);
    for (const bool with_bias : {false, true}) {
      check_requantize<std::uint8_t>(a, GetParam(), with_bias, 0.05F, 0, {0, 255});
      check_requantize<std::uint8_t>(a, GetParam(), with_bias, 0.03F, 77, {0, 255});
      check_requantize<std::int8_t>(a, GetParam(), with_bias, 0.07F, -11, {-128, 127});
      check_requantize<std::uint8_t>(a, GetParam(), with_bias, 1.1F, 3, {0, 15});
    }
  }
}

// Sums times a scale are denormal or huge: no shortcut of a vectorized kernel holds.
TEST_P(RequantizeActivations, ProductsOfExtremeScalesAgreeWithScalarLoops) {
  for (const float extreme : {1e-40F, 1e-38F, 9e28F}) {
    Accumulators a(60, 16, 2);
    a.product_scale[3] = extreme;
    check_requantize<std::uint8_t>(a, GetParam(), true, 0.05F, 7, {0, 255});
    check_requantize<std::int8_t>(a, GetParam(), false, 2.0F, 0, {-127, 127});
  }
}

// The largest products of all that are rounded before they are clamped, and the least that are not.
TEST_P(RequantizeActivations, ProductsNextToTheLargestIntegersAgreeWithScalarLoops) {
  for (const float multiplier : {std::nextafter(1.0F, 0.0F), 1.0F, 1.5F}) {
    Accumulators a(60, 16, 3);
    a.product_scale[3] = 0.0625F * multiplier;
    a.bias[3] = 0;
    a.acc[16 + 3] = std::numeric_limits<std::int32_t>::min();
    a.acc[32 + 3] = std::numeric_limits<std::int32_t>::max();
    check_requantize<std::uint8_t>(a, GetParam(), true, 0.0625F, 7, {0, 255});
    check_requantize<std::int8_t>(a, GetParam(), true, 0.0625F, -3, {-128, 127});
  }
}

template <typename CodeA, typename CodeB, typename CodeY>
void check_add(Activation activation, std::int64_t n, QParams<float> pa, QParams<float> pb,
               float scale, int zero_point, CodeRange range) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<CodeA> a(static_cast<std::size_t>(n));
  std::vector<CodeB> b(a.size());
  for (CodeA& code : a) code = static_cast<CodeA>(byte(random));
  for (CodeB& code : b) code = static_cast<CodeB>(byte(random));
  for (std::size_t i = 0; i < a.size(); i += 17) {  // a real sum of exactly zero
    a[i] = static_cast<CodeA>(pa.zero_point);
    b[i] = static_cast<CodeB>(pb.zero_point);
  }
  std::vector<CodeY> codes(a.size());
  std::vector<float> real(a.size());
  std::vector<std::uint8_t> mask((a.size() + 7) / 8, 0xFF);
  const std::int32_t zero = zero_point;
  run(RequantizeAdd<CodeA, CodeB, CodeY>{n,
                                         activation,
                                         {a.data(), &pa.scale, &pa.zero_point},
                                         {b.data(), &pb.scale, &pb.zero_point},
                                         &scale,
                                         &zero,
                                         range,
                                         codes.data(),
                                         mask.data()});
  run(DequantizeAdd<CodeA, CodeB>{n,
                                  activation,
                                  {a.data(), &pa.scale, &pa.zero_point},
                                  {b.data(), &pb.scale, &pb.zero_point},
                                  real.data()});
  const float ra = pa.scale / scale;
  const float rb = pb.scale / scale;
  const float za = static_cast<float>(pa.zero_point);
  const float zb = static_cast<float>(pb.zero_point);
  const auto low_a = static_cast<float>(std::numeric_limits<CodeA>::min());
  const auto low_b = static_cast<float>(std::numeric_limits<CodeB>::min());
  const auto low = static_cast<float>(std::numeric_limits<CodeY>::min());
  const float fixed =
      static_cast<float>(zero_point) - low - fused(ra, za - low_a, product(rb, zb - low_b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float fa = static_cast<float>(a[i]);
    const float fb = static_cast<float>(b[i]);
    const float unclamped =
        std::nearbyint(fused(fa - low_a, ra, fused(fb - low_b, rb, fixed))) + low;
    const float value = sum(product(pa.scale, fa - za), product(pb.scale, fb - zb));
    const Expected want = finish(unclamped, value, activation, scale, zero_point, range);
    ASSERT_EQ(static_cast<int>(codes[i]), want.code) << "element " << i;
    ASSERT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, want.passes) << "element " << i;
    ASSERT_EQ(real[i], want.real) << "element " << i;
  }
}

TEST_P(RequantizeActivations, SumsAgreeWithScalarLoops) {
  for (const std::int64_t n : {0, 1, 7, 5003, 40000}) {
    check_add<std::uint8_t, std::uint8_t, std::uint8_t>(GetParam(), n, {0.031F, 128}, {0.0155F, 90},
                                                        0.04F, 101, {0, 255});
    check_add<std::int8_t, std::int8_t, std::int8_t>(GetParam(), n, {0.1F, -3}, {0.05F, 7}, 0.1F, 0,
                                                     {-128, 127});
    check_add<std::int8_t, std::uint8_t, std::uint8_t>(GetParam(), n, {0.02F, 0}, {0.07F, 0}, 0.06F,
                                                       0, {0, 255});
    check_add<std::uint8_t, std::int8_t, std::int8_t>(GetParam(), n, {0.02F, 5}, {0.07F, -9}, 0.3F,
                                                      -8, {-128, 127});
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, RequantizeActivations,
                         ::testing::Values(Activation::kNone, Activation::kRelu,
                                           Activation::kRelu6),
                         activation_label);

TEST(Requantize, AnyNumberOfThreadsGivesTheSameCodes) {
  const Accumulators a(1001, 37, 3);
  const int threads = num_threads();
  std::vector<std::vector<std::uint8_t>> codes;
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    codes.emplace_back(a.acc.size());
    const float scale = 0.03F;
    const std::int32_t zero_point = 5;
    run(RequantizeAccumulators<std::uint8_t>{{a.rows, a.channels, Activation::kRelu},
                                             a.acc.data(),
                                             a.bias.data(),
                                             a.product_scale.data(),
                                             &scale,
                                             &zero_point,
                                             {0, 255},
                                             codes.back().data(),
                                             nullptr});
  }
  set_num_threads(threads);
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(codes[0], codes[2]);
}

TEST(PixelSums, AgreeWithPlainLoopsAndGiveTheAverage) {
  constexpr std::int64_t kBatch = 5, kPixels = 49, kChannels = 37;
  std::mt19937 random(9);
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<std::uint8_t> x(kBatch * kPixels * kChannels);
  for (auto& code : x) code = static_cast<std::uint8_t>(byte(random));
  std::vector<std::int32_t> sums(kBatch * kChannels, -1);
  const Conv2dShape whole = per_channel({.batch = kBatch,
                                         .in_h = kPixels,
                                         .in_w = 1,
                                         .in_channels = kChannels,
                                         .kernel_h = kPixels,
                                         .kernel_w = 1});
  const std::int32_t zero_point = 101;
  run(IntegerWindowSums<std::uint8_t>{whole, x.data(), &zero_point, sums.data()});
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      std::int32_t want = 0;
      for (std::int64_t p = 0; p < kPixels; ++p) want += x[(b * kPixels + p) * kChannels + c] - 101;
      EXPECT_EQ(sums[b * kChannels + c], want);
    }
  }
}

// Eight codes that QLinearAdd of ONNX Runtime 1.30 gave on x86: each differs by one from the
// formula without fused multiply-adds.
struct RecordedSum {
  QParams<float> a, b;
  float scale;
  std::int32_t zero_point;
  int code_a, code_b, sum;
};

template <typename Code>
void check_recorded(std::initializer_list<RecordedSum> sums) {
  for (const RecordedSum& s : sums) {
    const Code a = static_cast<Code>(s.code_a);
    const Code b = static_cast<Code>(s.code_b);
    Code y = 0;
    run(RequantizeAdd<Code, Code, Code>{
        1,
        Activation::kNone,
        {&a, &s.a.scale, &s.a.zero_point},
        {&b, &s.b.scale, &s.b.zero_point},
        &s.scale,
        &s.zero_point,
        {std::numeric_limits<Code>::min(), std::numeric_limits<Code>::max()},
        &y,
        nullptr});
    EXPECT_EQ(y, s.sum);
  }
}

TEST(Requantize, SumsAreThoseOfOnnxRuntime) {
  check_recorded<std::uint8_t>({{{0.0751F, 60}, {0.0444F, 166}, 0.0138F, 219, 3, 252, 185},
                                {{0.0867F, 9}, {0.0727F, 160}, 0.0958F, 201, 28, 138, 201},
                                {{0.0598F, 35}, {0.0525F, 84}, 0.0438F, 37, 29, 163, 123},
                                {{0.0981F, 17}, {0.0892F, 72}, 0.0592F, 64, 77, 9, 69}});
  check_recorded<std::int8_t>({{{0.0453F, -107}, {0.0678F, -40}, 0.042F, -84, 95, -52, 114},
                               {{0.0928F, -96}, {0.0143F, -38}, 0.0578F, 37, -83, 9, 70},
                               {{0.0397F, 68}, {0.0909F, 34}, 0.0204F, 123, 122, 2, 85},
                               {{0.0978F, 109}, {0.0208F, -42}, 0.024F, -33, 81, 66, -53}});
}
TEST(Averages, WindowsAreDepthwiseConvolutionsOfOnes) {
  constexpr std::int64_t kChannels = 5;
  std::mt19937 random(3);
  std::uniform_int_distribution<int> byte(-128, 127);
  std::vector<std::int8_t> x(2 * 9 * 8 * kChannels);
  for (auto& code : x) code = static_cast<std::int8_t>(byte(random));
  const Conv2dShape pool{.batch = 2,
                         .in_h = 9,
                         .in_w = 8,
                         .in_channels = kChannels,
                         .out_channels = kChannels,
                         .kernel_h = 3,
                         .kernel_w = 3,
                         .stride_h = 2,
                         .stride_w = 1,
                         .pad_h = 1,
                         .pad_w = 1,
                         .groups = kChannels};
  const auto n = static_cast<std::size_t>(pool.output_size());
  std::vector<std::int32_t> sums(n), products(n);
  const std::int32_t x_zero_point = 7, zero_point = -5;
  run(IntegerWindowSums<std::int8_t>{pool, x.data(), &x_zero_point, sums.data()});
  const std::vector<std::int8_t> ones(9 * kChannels, 1);
  run(IntegerConv2d<std::int8_t>{pool, x.data(), &x_zero_point, ones.data(), products.data()});
  EXPECT_EQ(sums, products);

  std::vector<std::int8_t> averages(n), codes(n);
  const float in_scale = 0.037F, scale = 0.021F;
  run(RequantizeAverage<std::int8_t>{pool.output_size(),
                                     {Average::Kind::kWindow, 9},
                                     sums.data(),
                                     &in_scale,
                                     &scale,
                                     &zero_point,
                                     {-128, 127},
                                     averages.data(),
                                     nullptr});
  const std::vector<float> product_scale(kChannels, in_scale * average_weight_scale(9));
  const Requantize rule{.rows = pool.output_size() / kChannels, .channels = kChannels};
  run(RequantizeAccumulators<std::int8_t>{rule,
                                          products.data(),
                                          nullptr,
                                          product_scale.data(),
                                          &scale,
                                          &zero_point,
                                          {-128, 127},
                                          codes.data(),
                                          nullptr});
  EXPECT_EQ(averages, codes);
}

}  // namespace
}  // namespace steelyard::kernels
