#include "steelyard/kernels/integer_product/integer_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/instructions.h"

namespace steelyard::kernels {
namespace {

template <typename Code>
std::vector<Code> codes(std::int64_t n, int lowest, int highest, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> code(lowest, highest);
  std::vector<Code> out(static_cast<std::size_t>(n));
  for (Code& value : out) value = static_cast<Code>(code(random));
  return out;
}

template <typename Code>
std::vector<Code> any_codes(std::int64_t n, unsigned seed) {
  return codes<Code>(n, std::numeric_limits<Code>::min(), std::numeric_limits<Code>::max(), seed);
}

template <typename Code>
std::vector<std::int64_t> naive_conv(const Conv2dShape& s, const std::vector<Code>& x,
                                     std::int64_t z, const std::vector<std::int8_t>& w) {
  const std::int64_t channels = s.in_channels_per_group();
  std::vector<std::int64_t> acc;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oh = 0; oh < s.out_h(); ++oh)
      for (std::int64_t ow = 0; ow < s.out_w(); ++ow)
        for (std::int64_t o = 0; o < s.out_channels; ++o) {
          const std::int64_t group = o / s.out_channels_per_group();
          std::int64_t sum = 0;
          for (std::int64_t kh = 0; kh < s.kernel_h; ++kh)
            for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const std::int64_t h = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
              const std::int64_t v = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
              if (h < 0 || h >= s.in_h || v < 0 || v >= s.in_w) continue;
              for (std::int64_t c = 0; c < channels; ++c) {
                const std::int64_t pixel = (n * s.in_h + h) * s.in_w + v;
                sum += (x[pixel * s.in_channels + group * channels + c] - z) *
                       w[((o * channels + c) * s.kernel_h + kh) * s.kernel_w + kw];
              }
            }
          acc.push_back(sum);
        }
  return acc;
}

std::int64_t wrong_sums(const std::vector<std::int32_t>& acc,
                        const std::vector<std::int64_t>& expected) {
  std::int64_t wrong = acc.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(acc.size(), expected.size()); ++i) {
    wrong += acc[i] == expected[i] ? 0 : 1;
  }
  return wrong;
}

// Of weights as they are, and as a product without images keeps them.
template <typename Code>
std::int64_t wrong_conv_sums(Backend backend, const Conv2dShape& s, const std::vector<Code>& x,
                             std::int32_t z, const std::vector<std::int8_t>& w) {
  const std::vector<std::int64_t> expected = naive_conv(s, x, z, w);
  std::vector<std::int32_t> acc(static_cast<std::size_t>(s.output_size()), -1);
  KeptWeights kept;
  IntegerConv2d<Code> product{.shape = s,
                              .x = x.data(),
                              .zero_point = &z,
                              .w = w.data(),
                              .acc = acc.data(),
                              .backend = backend};
  run(product);
  const std::int64_t wrong = wrong_sums(acc, expected);
  std::fill(acc.begin(), acc.end(), -1);
  product.kept = &kept;
  product.shape.batch = 0;
  run(product);
  product.shape.batch = s.batch;
  product.w = nullptr;
  run(product);
  return wrong + wrong_sums(acc, expected);
}

// Few neighbours of which are large, so that their products with codes could leave int16.
std::vector<std::int8_t> mostly_small_weights(std::int64_t n) {
  auto w = codes<std::int8_t>(n, -64, 64, 5);
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i / 2 % 101 == 7) w[i] = 127;
    if (i / 2 % 101 == 50) w[i] = -128;
    if (i % 307 == 0) w[i] = -120;
  }
  return w;
}

std::string backend_label(const ::testing::TestParamInfo<Backend>& test) {
  return std::string(backend_name(test.param));
}

struct NamedShape {
  std::string name;
  Conv2dShape shape;
};

const NamedShape kShapes[] = {
    {"k3_pad1", {2, 9, 11, 16, 24, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"one_channel", {3, 12, 12, 1, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"three_channels_k5", {1, 15, 13, 3, 16, 5, 5, 2, 2, 2, 2, 1, 1, 1}},
    {"k1_stride2", {2, 8, 8, 32, 64, 1, 1, 2, 2, 0, 0, 1, 1, 1}},
    {"k1_stride2_few_channels", {7, 10, 12, 4, 8, 1, 1, 2, 2, 0, 0, 1, 1, 1}},
    {"dilation", {1, 14, 12, 5, 7, 3, 3, 1, 1, 2, 2, 2, 2, 1}},
    {"rectangular", {2, 7, 10, 4, 6, 2, 3, 2, 1, 0, 1, 1, 2, 1}},
    {"groups", {2, 8, 8, 12, 18, 3, 3, 1, 1, 1, 1, 1, 1, 3}},
    {"groups_of_16", {2, 6, 6, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2}},
    {"depthwise", {2, 10, 9, 19, 19, 3, 3, 1, 1, 1, 1, 1, 1, 19}},
    {"depthwise_stride2", {2, 10, 9, 32, 32, 3, 3, 2, 2, 1, 1, 1, 1, 32}},
    {"depthwise_of_several_vectors", {2, 7, 9, 144, 144, 3, 3, 1, 1, 1, 1, 1, 1, 144}},
    {"depthwise_k5", {2, 11, 10, 16, 16, 5, 5, 1, 1, 2, 2, 1, 1, 16}},
    {"depthwise_dilated", {1, 9, 12, 8, 8, 3, 3, 1, 1, 2, 2, 2, 2, 8}},
    {"depthwise_narrow_image", {2, 5, 2, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 64}},
    {"depthwise_row", {3, 1, 40, 4, 4, 1, 7, 1, 1, 0, 3, 1, 1, 4}},
    {"depth_multiplier", {1, 8, 8, 4, 8, 3, 3, 1, 1, 1, 1, 1, 1, 4}},
    {"one_pixel", {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
    {"only_padding", {1, 2, 2, 3, 5, 3, 3, 1, 1, 2, 2, 1, 1, 1}},
    {"groups_of_3", {2, 7, 5, 9, 15, 3, 3, 1, 1, 1, 1, 1, 1, 3}},
    {"many_outputs", {1, 4, 5, 6, 70, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
    {"narrow_last_tile", {3, 7, 7, 1030, 40, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
    {"odd_everything", {3, 5, 7, 37, 41, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"long_rows_of_kernel", {1, 4, 5, 347, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"long_groups_dilated", {1, 5, 5, 1030, 8, 3, 3, 1, 1, 2, 2, 2, 2, 2}},
};

class IntegerConv : public ::testing::TestWithParam<std::tuple<Backend, NamedShape>> {};

std::string conv_label(const ::testing::TestParamInfo<std::tuple<Backend, NamedShape>>& test) {
  return std::string(backend_name(std::get<0>(test.param))) + "_" + std::get<1>(test.param).name;
}

TEST_P(IntegerConv, NoSumIsWrong) {
  const auto& [backend, named] = GetParam();
  const Conv2dShape& s = named.shape;
  const auto w = any_codes<std::int8_t>(s.weight_size(), 1);
  const auto small_w = codes<std::int8_t>(s.weight_size(), -3, 3, 2);
  const auto mostly_small_w = mostly_small_weights(s.weight_size());
  const auto x = any_codes<std::uint8_t>(s.input_size(), 3);
  const auto signed_x = any_codes<std::int8_t>(s.input_size(), 4);
  for (const std::int32_t z : {0, 117, 255}) {
    EXPECT_EQ(wrong_conv_sums(backend, s, x, z, w), 0) << "u8, zero point " << z;
    EXPECT_EQ(wrong_conv_sums(backend, s, x, z, small_w), 0) << "u8, zero point " << z;
    EXPECT_EQ(wrong_conv_sums(backend, s, x, z, mostly_small_w), 0) << "u8, zero point " << z;
  }
  for (const std::int32_t z : {-128, -5, 0, 127}) {
    EXPECT_EQ(wrong_conv_sums(backend, s, signed_x, z, w), 0) << "s8, zero point " << z;
    EXPECT_EQ(wrong_conv_sums(backend, s, signed_x, z, mostly_small_w), 0)
        << "s8, zero point " << z;
  }
  const std::vector<std::uint8_t> high_x(x.size(), 255);
  const std::vector<std::int8_t> high_w(w.size(), 127), low_w(w.size(), -128);
  EXPECT_EQ(wrong_conv_sums(backend, s, high_x, 0, high_w), 0) << "all codes at the top";
  EXPECT_EQ(wrong_conv_sums(backend, s, high_x, 0, low_w), 0) << "most negative weights";
  EXPECT_EQ(wrong_conv_sums(backend, s, high_x, 0, mostly_small_w), 0) << "few large weights";
  const std::vector<std::uint8_t> low_x(x.size(), 0);
  const std::vector<std::int8_t> narrow_w(w.size(), -127);
  EXPECT_EQ(wrong_conv_sums(backend, s, low_x, 255, low_w), 0) << "all codes at the bottom";
  EXPECT_EQ(wrong_conv_sums(backend, s, low_x, 255, narrow_w), 0) << "of a narrow range";
}

INSTANTIATE_TEST_SUITE_P(Shapes, IntegerConv,
                         ::testing::Combine(::testing::ValuesIn(available_backends()),
                                            ::testing::ValuesIn(kShapes)),
                         conv_label);

// That of the best instructions which the process may use.
TEST(KeptWeights, HaveTheFormOfTheBestInstructions) {
  using enum KeptWeights::Form;
  const auto form_of = [](std::vector<std::int8_t> w) {
    KeptWeights kept;
    const std::int32_t zero = 0;
    run(IntegerMatmul<std::uint8_t>{.m = 0,
                                    .n = 16,
                                    .k = 16,
                                    .x = nullptr,
                                    .zero_point = &zero,
                                    .w = w.data(),
                                    .acc = nullptr,
                                    .kept = &kept});
    return kept.form;
  };
  const auto small = form_of(codes<std::int8_t>(256, -64, 64, 1));
  const auto large = form_of(std::vector<std::int8_t>(256, 127));
  const std::string level = instructions_text();
  const bool vnni =
      default_backend() != Backend::kEigen && (level == "x86-64-v4" ? has_vnni() : has_avx_vnni());
  if (level == "x86-64-v4" || level == "x86-64-v3") {
    EXPECT_EQ(large, vnni ? kQuads : kPairs);
    EXPECT_EQ(small, vnni ? kQuads : level == "x86-64-v3" ? kBytes : kPairs);
  } else if (level == "x86-64-v2") {
    EXPECT_EQ(small, kPairs);
    EXPECT_EQ(large, kPairs);
  } else {
    EXPECT_NE(small, kNone);
  }
}

class IntegerProducts : public ::testing::TestWithParam<Backend> {
 protected:
  template <typename Code>
  std::int64_t wrong_products(std::int64_t m, std::int64_t n, std::int64_t k,
                              const std::vector<Code>& x, std::int32_t z,
                              const std::vector<std::int8_t>& w) const {
    std::vector<std::int32_t> acc(static_cast<std::size_t>(m * n), -1);
    run(IntegerMatmul<Code>{m, n, k, x.data(), &z, w.data(), acc.data(), kLargestProduct,
                            GetParam()});
    Conv2dShape rows{m, 1, 1, k, n};
    return wrong_sums(acc, naive_conv(rows, x, z, w));
  }
};

TEST_P(IntegerProducts, NoSumIsWrong) {
  const std::tuple<int, int, int> sizes[] = {{1, 1, 1},    {5, 7, 3},      {33, 10, 65},
                                             {64, 64, 64}, {130, 31, 257}, {2, 300, 784}};
  for (const auto& [m, n, k] : sizes) {
    const auto w = any_codes<std::int8_t>(n * k, 1);
    const auto small_w = codes<std::int8_t>(n * k, -2, 2, 2);
    for (const std::int32_t z : {0, 101}) {
      EXPECT_EQ(wrong_products(m, n, k, any_codes<std::uint8_t>(m * k, 3), z, w), 0);
      EXPECT_EQ(wrong_products(m, n, k, any_codes<std::uint8_t>(m * k, 4), z, small_w), 0);
      EXPECT_EQ(wrong_products(m, n, k, any_codes<std::int8_t>(m * k, 5), z - 100, w), 0);
    }
  }
}

// One-sided data: 3,780 of these 4,096 sums are wrong when added in float (docs/numerics.md).
TEST_P(IntegerProducts, OneSidedDataAreExact) {
  constexpr std::int64_t kSide = 64;
  constexpr std::int64_t kTerms = 4608;
  const auto x = codes<std::uint8_t>(kSide * kTerms, 224, 255, 1);
  const auto w = codes<std::int8_t>(kSide * kTerms, 96, 127, 2);
  EXPECT_EQ(wrong_products(kSide, kSide, kTerms, x, 0, w), 0);
  const Conv2dShape as_conv{1, 8, 8, 512, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  const auto image = codes<std::uint8_t>(as_conv.input_size(), 224, 255, 3);
  EXPECT_EQ(wrong_conv_sums(GetParam(), as_conv, image, 0, w), 0);
}

TEST_P(IntegerProducts, EmptySizesWriteNothingOrZeros) {
  std::vector<std::int32_t> acc(6, 7);
  const std::vector<std::uint8_t> x(6, 1);
  const std::vector<std::int8_t> w(6, 1);
  const std::int32_t z = 0;
  const auto multiply = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    run(IntegerMatmul<std::uint8_t>{m, n, k, x.data(), &z, w.data(), acc.data(), kLargestProduct,
                                    GetParam()});
  };
  multiply(0, 3, 2);
  multiply(3, 0, 2);
  EXPECT_EQ(acc, std::vector<std::int32_t>(6, 7));
  multiply(2, 3, 0);
  EXPECT_EQ(acc, std::vector<std::int32_t>(6, 0));
}

TEST_P(IntegerProducts, SumsThatCouldOverflowAreRefused) {
  const std::uint8_t x = 0;
  const std::int8_t w = 0;
  const std::int32_t z = 0;
  std::int32_t acc = 0;
  using Product = IntegerMatmul<std::uint8_t>;
  const Product refused{1, 1, 65794, &x, &z, &w, &acc, kLargestProduct, GetParam()};
  EXPECT_THROW(run(refused), std::invalid_argument);
  const std::int64_t small = largest_product({0, 15}, {-7, 7});
  EXPECT_EQ(small, 105);
  const std::vector<std::uint8_t> many_x(65794, 15);
  const std::vector<std::int8_t> many_w(65794, -7);
  run(Product{1, 1, 65794, many_x.data(), &z, many_w.data(), &acc, small, GetParam()});
  EXPECT_EQ(acc, -65794 * 105);
}

// As a damaged file may say of its values: no number is divided by their product, which is 0.
TEST_P(IntegerProducts, OfARangeOfOneCodeAreZeros) {
  constexpr std::int64_t kTerms = 9;
  const std::vector<std::uint8_t> x(kTerms, 5);
  const std::vector<std::int8_t> w(kTerms, 127);
  const std::int32_t z = 5;
  for (const std::int64_t largest :
       {largest_product({5, 5}, {-127, 127}), largest_product({0, 255}, {0, 0}, false)}) {
    EXPECT_EQ(largest, 1);
    std::int32_t acc = 7;
    run(IntegerMatmul<std::uint8_t>{1, 1, kTerms, x.data(), &z, w.data(), &acc, largest,
                                    GetParam()});
    EXPECT_EQ(acc, 0);
  }
}

TEST_P(IntegerProducts, AnyNumberOfThreadsGivesTheSameSums) {
  const Conv2dShape& s = kShapes[0].shape;
  const auto x = any_codes<std::uint8_t>(s.input_size(), 1);
  const auto w = any_codes<std::int8_t>(s.weight_size(), 2);
  const int threads = num_threads();
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    EXPECT_EQ(wrong_conv_sums(GetParam(), s, x, 9, w), 0) << count << " threads";
  }
  set_num_threads(threads);
}

// What a layer has behind its sums.
struct Behind {
  explicit Behind(std::int64_t channels)
      : bias(static_cast<std::size_t>(channels)), product_scale(bias.size()) {
    for (std::size_t i = 0; i < bias.size(); ++i) {
      bias[i] = static_cast<std::int32_t>(i * 7919 % 4001) - 2000;
      product_scale[i] = 1e-4F * static_cast<float>(1 + i % 13);
    }
  }

  template <typename Out>
  RequantizeAccumulators<Out> kernel(std::int64_t rows, std::int32_t* acc, Out* codes,
                                     std::uint8_t* mask) const {
    return {.op = {rows, static_cast<std::int64_t>(bias.size()), Activation::kRelu},
            .acc = acc,
            .bias = bias.data(),
            .product_scale = product_scale.data(),
            .scale = &scale,
            .zero_point = &zero_point,
            .range = whole_range(std::is_signed_v<Out> ? CodeType::kS8 : CodeType::kU8),
            .codes = codes,
            .mask = mask};
  }

  std::vector<std::int32_t> bias;
  std::vector<float> product_scale;
  float scale = 0.05F;
  std::int32_t zero_point = 3;
};

// The codes and the mask, as far as these have bits.
template <typename Out, class Product>
void expect_codes_of_two_kernels(Product product, std::int64_t rows, std::int64_t channels) {
  const Behind behind(channels);
  const auto n = static_cast<std::size_t>(rows * channels);
  std::vector<std::int32_t> acc(n);
  std::vector<Out> codes(n, 1), expected(n, 2);
  std::vector<std::uint8_t> mask((n + 7) / 8, 0xFF), expected_mask(mask.size());
  product.acc = acc.data();
  run(product);
  run(behind.kernel(rows, acc.data(), expected.data(), expected_mask.data()));
  for (const bool with_mask : {false, true}) {
    run(RequantizedProduct<Product, Out>{
        product, behind.kernel(rows, acc.data(), codes.data(), with_mask ? mask.data() : nullptr)});
    EXPECT_EQ(codes, expected);
    std::fill(codes.begin(), codes.end(), Out{1});
  }
  EXPECT_EQ(mask, expected_mask);
}

template <typename Code>
void expect_conv_codes(Backend backend, const Conv2dShape& s) {
  const auto x = any_codes<Code>(s.input_size(), 1);
  const auto w = any_codes<std::int8_t>(s.weight_size(), 2);
  const std::int32_t z = 11;
  const std::int64_t rows = s.batch * s.out_h() * s.out_w();
  const IntegerConv2d<Code> product{.shape = s,
                                    .x = x.data(),
                                    .zero_point = &z,
                                    .w = w.data(),
                                    .acc = nullptr,
                                    .backend = backend};
  expect_codes_of_two_kernels<std::int8_t>(product, rows, s.out_channels);
  expect_codes_of_two_kernels<std::uint8_t>(product, rows, s.out_channels);
}

TEST_P(IntegerConv, CodesOfItsSumsAreThoseOfTwoKernels) {
  const auto& [backend, named] = GetParam();
  expect_conv_codes<std::uint8_t>(backend, named.shape);
  expect_conv_codes<std::int8_t>(backend, named.shape);
}

TEST_P(IntegerProducts, CodesOfTheirSumsAreThoseOfTwoKernels) {
  const std::tuple<int, int, int> sizes[] = {
      {1, 1, 1}, {0, 3, 2}, {3, 5, 0}, {5, 7, 3}, {130, 31, 257}, {1, 1000, 515}, {49, 136, 640}};
  const int threads = num_threads();
  for (const int count : {1, 2, 3, 7}) {
    set_num_threads(count);
    for (const auto& [m, n, k] : sizes) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k);
      const auto x = any_codes<std::uint8_t>(std::int64_t{m} * k, 3);
      const auto w = any_codes<std::int8_t>(std::int64_t{n} * k, 4);
      const std::int32_t z = 7;
      expect_codes_of_two_kernels<std::uint8_t>(
          IntegerMatmul<std::uint8_t>{m, n, k, x.data(), &z, w.data(), nullptr, kLargestProduct,
                                      GetParam()},
          m, n);
    }
  }
  set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(Backends, IntegerProducts, ::testing::ValuesIn(available_backends()),
                         backend_label);

}  // namespace
}  // namespace steelyard::kernels
