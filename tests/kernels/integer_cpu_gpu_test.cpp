// Integer products, requantization and pooling of codes: CPU against GPU, no bit different.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_both;
using test::random_codes;
using test::Twin;

template <typename Code>
std::vector<Code> any_codes(std::int64_t n, unsigned seed) {
  return random_codes<Code>(n, std::numeric_limits<Code>::min(), std::numeric_limits<Code>::max(),
                            seed);
}

template <typename Code>
void check_conv(const Conv2dShape& s, std::vector<Code> codes, std::int32_t z,
                std::vector<std::int8_t> weights, std::int64_t largest = kLargestProduct) {
  Twin<Code> x(std::move(codes));
  Twin<std::int8_t> w(std::move(weights));
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<std::int32_t> acc(s.output_size());
  on_both([&](auto at, auto&... queue) {
    run(queue..., IntegerConv2d<Code>{s, at(x), at(zero), at(w), at(acc), largest});
  });
  EXPECT_EQ(acc.differences(), 0);
}

template <typename Code>
void check_matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<Code> codes,
                  std::int32_t z, std::vector<std::int8_t> weights,
                  std::int64_t largest = kLargestProduct) {
  Twin<Code> x(std::move(codes));
  Twin<std::int8_t> w(std::move(weights));
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<std::int32_t> acc(m * n);
  on_both([&](auto at, auto&... queue) {
    run(queue..., IntegerMatmul<Code>{m, n, k, at(x), at(zero), at(w), at(acc), largest});
  });
  EXPECT_EQ(acc.differences(), 0) << m << " x " << n << " x " << k;
}

TEST(IntegerProductsOnGpu, MatricesOfAnySize) {
  for (const auto& [m, n, k] : {std::tuple<int, int, int>{1, 1, 1},
                                {5, 7, 3},
                                {33, 10, 65},
                                {130, 31, 257},
                                {3, 30, 784},
                                {0, 3, 2},
                                {3, 0, 2},
                                {2, 3, 0},
                                {2, 3, 512},
                                {2, 3, 513},
                                {2, 3, 1025}}) {
    check_matmul(m, n, k, any_codes<std::uint8_t>(m * k, 1), 101, any_codes<std::int8_t>(n * k, 2));
    check_matmul(m, n, k, any_codes<std::int8_t>(m * k, 3), -7, any_codes<std::int8_t>(n * k, 4));
  }
}

// All terms of one sign and of the largest size: a sum in float that is not cut into parts is wrong
// (docs/numerics.md).
TEST(IntegerProductsOnGpu, OneSidedDataAreExact) {
  constexpr std::int64_t kTerms = 4608;
  check_matmul(16, 8, kTerms, random_codes<std::uint8_t>(16 * kTerms, 224, 255, 1), 0,
               random_codes<std::int8_t>(8 * kTerms, 96, 127, 2));
  check_matmul(3, 2, kTerms, std::vector<std::uint8_t>(3 * kTerms, 255), 0,
               std::vector<std::int8_t>(2 * kTerms, -128));
  check_matmul(3, 2, kTerms, std::vector<std::int8_t>(3 * kTerms, -128), 127,
               std::vector<std::int8_t>(2 * kTerms, -128));
  const Conv2dShape s{1, 5, 5, 512, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  check_conv(s, random_codes<std::uint8_t>(s.input_size(), 224, 255, 3), 0,
             random_codes<std::int8_t>(s.weight_size(), 96, 127, 4));
}

TEST(IntegerProductsOnGpu, NarrowCodesAddMoreAtATime) {
  constexpr std::int64_t kTerms = 20000;
  const std::int64_t largest = largest_product({0, 15}, {-8, 7});
  EXPECT_EQ(largest, 120);
  check_matmul(2, 3, kTerms, random_codes<std::uint8_t>(2 * kTerms, 0, 15, 1), 9,
               random_codes<std::int8_t>(3 * kTerms, -8, 7, 2), largest);
  // 16.9 million: more than one part.
  check_matmul(2, 3, 150000, std::vector<std::uint8_t>(300000, 15), 0,
               random_codes<std::int8_t>(450000, -8, -7, 3), largest);
}

TEST(IntegerProductsOnGpu, ConvolutionsOfAnyShape) {
  //                           N  H   W   C   O  kh kw sh sw ph pw dh dw g
  const Conv2dShape shapes[] = {
      {2, 9, 8, 5, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1},   {1, 12, 11, 16, 8, 3, 3, 2, 2, 1, 1, 1, 1, 1},
      {3, 7, 10, 3, 4, 5, 3, 2, 1, 2, 0, 1, 2, 1},  {2, 6, 6, 24, 24, 1, 1, 1, 1, 0, 0, 1, 1, 1},
      {2, 6, 5, 12, 20, 3, 3, 1, 1, 1, 1, 1, 1, 4}, {2, 8, 7, 9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 9},
      {2, 8, 7, 6, 18, 3, 2, 2, 1, 1, 1, 1, 1, 6},  {1, 6, 6, 1, 3, 3, 3, 1, 1, 2, 2, 2, 2, 1},
      {1, 5, 5, 140, 6, 3, 3, 1, 1, 1, 1, 1, 1, 2}, {0, 5, 5, 4, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      {1, 2, 2, 4, 6, 3, 3, 1, 1, 2, 2, 1, 1, 1}};
  for (const Conv2dShape& s : shapes) {
    SCOPED_TRACE(::testing::Message() << s.in_channels << " to " << s.out_channels << " channels");
    check_conv(s, any_codes<std::uint8_t>(s.input_size(), 1), 101,
               any_codes<std::int8_t>(s.weight_size(), 2));
    check_conv(s, any_codes<std::int8_t>(s.input_size(), 3), -128,
               any_codes<std::int8_t>(s.weight_size(), 4));
  }
}

TEST(IntegerProductsOnGpu, SumsThatCouldOverflowAreRefused) {
  std::uint8_t x = 0;
  const std::int32_t z = 0;
  const std::int8_t w = 0;
  std::int32_t acc = 0;
  const IntegerMatmul<std::uint8_t> refused{1, 1, 65794, &x, &z, &w, &acc};
  EXPECT_THROW(run(CudaQueue{}, refused), std::invalid_argument);
}

// Sums of any size, some of which are 0 with their bias, and overflows of the real value.
struct Accumulators {
  Twin<std::int32_t> acc;
  Twin<std::int32_t> bias;
  Twin<float> product_scale;

  Accumulators(std::int64_t rows, std::int64_t channels, bool with_bias, bool huge)
      : acc(make_acc(rows * channels)),
        bias(with_bias ? Twin<std::int32_t>(make_bias(channels)) : Twin<std::int32_t>()),
        product_scale(make_scale(channels, huge)) {}

  static std::vector<std::int32_t> make_acc(std::int64_t n) {
    std::mt19937 random(1);
    std::uniform_int_distribution<std::int32_t> value(-40000, 40000);
    std::vector<std::int32_t> acc;
    for (std::int64_t i = 0; i < n; ++i) acc.push_back(i % 41 == 5 ? -17 : value(random));
    if (n > 2) acc[0] = 1 << 30, acc[1] = -(1 << 30), acc[2] = 16777217;
    return acc;
  }
  static std::vector<std::int32_t> make_bias(std::int64_t n) {
    std::vector<std::int32_t> bias;
    for (std::int64_t i = 0; i < n; ++i) bias.push_back(static_cast<std::int32_t>(i * 997 % 5000));
    if (n > 0) bias[0] = 17;
    return bias;
  }
  static std::vector<float> make_scale(std::int64_t n, bool huge) {
    std::vector<float> scale;
    for (std::int64_t i = 0; i < n; ++i) {
      scale.push_back(huge ? 1e37F : 1e-5F * static_cast<float>(1 + i % 89));
    }
    return scale;
  }
};

template <typename Code>
void check_requantize(std::int64_t rows, std::int64_t channels, Activation activation,
                      bool with_bias, float s, std::int32_t z, CodeRange range) {
  const Requantize op{rows, channels, activation};
  const std::int64_t n = rows * channels;
  Accumulators a(rows, channels, with_bias, false);
  Twin<float> scale(std::vector<float>{s});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<Code> codes(n), codes_alone(n);
  Twin<std::uint8_t> mask(mask_bytes(n)), no_mask;
  Twin<float> real(n);
  on_both([&](auto at, auto&... queue) {
    run(queue..., RequantizeAccumulators<Code>{op, at(a.acc), at(a.bias), at(a.product_scale),
                                               at(scale), at(zero), range, at(codes), at(mask)});
    run(queue...,
        RequantizeAccumulators<Code>{op, at(a.acc), at(a.bias), at(a.product_scale), at(scale),
                                     at(zero), range, at(codes_alone), at(no_mask)});
    run(queue..., DequantizeAccumulators{op.rows, op.channels, op.activation, at(a.acc), at(a.bias),
                                         at(a.product_scale), at(real)});
  });
  EXPECT_EQ(codes.differences(), 0);
  EXPECT_EQ(codes_alone.differences(), 0);
  EXPECT_EQ(mask.differences(), 0);
  EXPECT_EQ(real.differences(), 0);
}

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};

TEST(RequantizeOnGpu, ProductsAreTheCpus) {
  for (const Activation activation : kActivations) {
    for (const auto& [rows, channels] :
         {std::pair<int, int>{0, 4}, {1, 1}, {1000, 1}, {301, 3}, {77, 64}, {3, 2050}}) {
      for (const bool bias : {false, true}) {
        check_requantize<std::uint8_t>(rows, channels, activation, bias, 0.05F, 0, {0, 255});
        check_requantize<std::int8_t>(rows, channels, activation, bias, 0.07F, -11, {-128, 127});
        check_requantize<std::uint8_t>(rows, channels, activation, bias, 1.1F, 3, {0, 15});
      }
    }
  }
}

TEST(RequantizeOnGpu, ExtremesOfAccumulatorsAreTheCpus) {
  for (const Activation activation : kActivations) {
    for (const auto& [rows, channels] :
         {std::pair<int, int>{0, 4}, {1, 1}, {301, 3}, {5000, 7}, {3, 2050}}) {
      for (const bool huge : {false, true}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << channels << ", huge " << huge);
        for_each_order([&, rows = rows, channels = channels] {
          Accumulators a(rows, channels, true, huge);
          test::RangeTwins range;
          on_both([&](auto at, auto&... queue) {
            run(queue..., ObserveAccumulators{{.averaging = 0.1},
                                              range.quantizer(at),
                                              {rows, channels, activation},
                                              at(a.acc),
                                              at(a.bias),
                                              at(a.product_scale)});
          });
          range.expect_equal();
          std::vector<float> real(a.acc.values().size());
          run(DequantizeAccumulators{rows, channels, activation, a.acc.cpu(), a.bias.cpu(),
                                     a.product_scale.cpu(), real.data()});
          const bool overflows =
              std::any_of(real.begin(), real.end(), [](float v) { return std::isinf(v); });
          EXPECT_EQ(range.non_finite.values()[0], overflows ? 4 : 3);
          EXPECT_TRUE(!huge || overflows || rows < 2 || activation == Activation::kRelu6);
        });
      }
    }
  }
}

template <typename CodeA, typename CodeB, typename CodeY>
void check_add(std::int64_t n, Activation activation, std::vector<float> scales,
               std::vector<std::int32_t> zeros, CodeRange range) {
  Twin<CodeA> a(any_codes<CodeA>(n, 1));
  Twin<CodeB> b(any_codes<CodeB>(n, 2));
  Twin<float> scale(std::move(scales));
  Twin<std::int32_t> zero(std::move(zeros));
  Twin<CodeY> codes(n);
  Twin<std::uint8_t> mask(mask_bytes(n));
  Twin<float> real(n);
  on_both([&](auto at, auto&... queue) {
    run(queue..., RequantizeAdd<CodeA, CodeB, CodeY>{n,
                                                     activation,
                                                     {at(a), at(scale), at(zero)},
                                                     {at(b), at(scale) + 1, at(zero) + 1},
                                                     at(scale) + 2,
                                                     at(zero) + 2,
                                                     range,
                                                     at(codes),
                                                     at(mask)});
    run(queue..., DequantizeAdd<CodeA, CodeB>{n,
                                              activation,
                                              {at(a), at(scale), at(zero)},
                                              {at(b), at(scale) + 1, at(zero) + 1},
                                              at(real)});
  });
  EXPECT_EQ(codes.differences(), 0);
  EXPECT_EQ(mask.differences(), 0);
  EXPECT_EQ(real.differences(), 0);
}

TEST(RequantizeOnGpu, SumsAreTheCpus) {
  for (const Activation activation : kActivations) {
    for (const std::int64_t n : {0, 1, 7, 5003}) {
      check_add<std::uint8_t, std::uint8_t, std::uint8_t>(n, activation, {0.031F, 0.0155F, 0.04F},
                                                          {128, 90, 101}, {0, 255});
      check_add<std::int8_t, std::int8_t, std::int8_t>(n, activation, {0.1F, 0.05F, 0.1F},
                                                       {-3, 7, 0}, {-128, 127});
      check_add<std::int8_t, std::uint8_t, std::uint8_t>(n, activation, {0.02F, 0.07F, 0.06F},
                                                         {0, 0, 0}, {0, 15});
      check_add<std::uint8_t, std::int8_t, std::int8_t>(n, activation, {0.02F, 0.07F, 0.3F},
                                                        {5, -9, -8}, {-128, 127});
    }
  }
}

template <typename Code>
void check_code_ops(std::int64_t n, Activation activation, float s, std::int32_t z,
                    CodeRange range) {
  Twin<Code> x(random_codes<Code>(n, range.qmin, range.qmax, 1));
  Twin<float> scale(std::vector<float>{s});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<std::uint8_t> keeps(any_codes<std::uint8_t>(mask_bytes(n), 2));
  Twin<std::uint8_t> mask(mask_bytes(n));
  Twin<Code> activated(n), dropped(n);
  on_both([&](auto at, auto&... queue) {
    run(queue..., ActivateCodes<Code>{n, activation, at(x), at(scale), at(zero), range,
                                      at(activated), at(mask)});
    run(queue..., DropCodes<Code>{n, at(keeps), at(x), at(zero), at(dropped)});
  });
  EXPECT_EQ(activated.differences(), 0);
  EXPECT_EQ(mask.differences(), 0);
  EXPECT_EQ(dropped.differences(), 0);
  const CodeRange left = activation_code_range(activation, range, s, z);
  for (std::size_t i = 0; i < x.values().size(); ++i) {
    const int code = x.values()[i];
    const bool linear = activation == Activation::kNone ||
                        (code > left.qmin && (activation == Activation::kRelu || code < left.qmax));
    ASSERT_EQ(activated.values()[i], std::clamp(code, left.qmin, left.qmax)) << i;
    ASSERT_EQ((mask.values()[i / 8] >> (i % 8) & 1) != 0, linear) << i;
    const bool keep = (keeps.values()[i / 8] >> (i % 8) & 1) != 0;
    ASSERT_EQ(dropped.values()[i], keep ? code : z) << i;
  }
}

TEST(CodeOpsOnGpu, ActivationsAndDropoutAreTheCpusAndTheDefinition) {
  for (const Activation activation : kActivations) {
    for (const std::int64_t n : {0, 1, 7, 4099}) {
      check_code_ops<std::uint8_t>(n, activation, 0.05F, 101, {0, 255});
      check_code_ops<std::int8_t>(n, activation, 0.4F, -2, {-8, 7});
    }
  }
}

template <typename Code>
void check_average(const Conv2dShape& pool, Average::Kind kind, std::int32_t z, CodeRange range) {
  const std::int64_t n = pool.output_size();
  const Average average{kind, pool.kernel_h * pool.kernel_w};
  Twin<Code> x(any_codes<Code>(pool.input_size(), 1));
  Twin<float> scale(std::vector<float>{0.037F, 0.021F});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z, z / 2});
  Twin<std::int32_t> sums(n);
  Twin<Code> codes(n);
  Twin<std::uint8_t> mask(mask_bytes(n));
  Twin<float> real(n);
  on_both([&](auto at, auto&... queue) {
    run(queue..., IntegerWindowSums<Code>{pool, at(x), at(zero), at(sums)});
    run(queue..., RequantizeAverage<Code>{n, average, at(sums), at(scale), at(scale) + 1,
                                          at(zero) + 1, range, at(codes), at(mask)});
    run(queue..., DequantizeAverage{n, average.count, at(sums), at(scale), at(real)});
  });
  EXPECT_EQ(sums.differences(), 0);
  EXPECT_EQ(codes.differences(), 0);
  EXPECT_EQ(mask.differences(), 0);
  EXPECT_EQ(real.differences(), 0);
}

TEST(AveragesOnGpu, AreTheCpus) {
  using Kind = Average::Kind;
  const Conv2dShape windows = per_channel({2, 9, 8, 5, 0, 3, 3, 2, 1, 1, 1});
  const Conv2dShape whole = per_channel({5, 7, 7, 37, 0, 7, 7, 1, 1, 0, 0});
  const Conv2dShape empty = per_channel({0, 7, 7, 37, 0, 7, 7, 1, 1, 0, 0});
  for (const Conv2dShape& pool : {windows, whole, empty}) {
    for (const Kind kind : {Kind::kGlobal, Kind::kWindow}) {
      check_average<std::uint8_t>(pool, kind, 101, {0, 255});
      check_average<std::int8_t>(pool, kind, -10, {-128, 127});
      check_average<std::uint8_t>(pool, kind, 14, {0, 15});
    }
  }
}

// More rows of 57,600 terms than fit the memory that one block of them may take.
TEST(LargeProductsOnGpu, RowsAreTakenInBlocks) {
  const Conv2dShape s{5, 16, 16, 6400, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  check_conv(s, any_codes<std::uint8_t>(s.input_size(), 1), 101,
             any_codes<std::int8_t>(s.weight_size(), 2));
}

template <typename In, typename Code>
void check_softmax(std::int64_t rows, std::int64_t columns, std::int32_t z) {
  Twin<In> x(any_codes<In>(rows * columns, 1));
  Twin<float> in_scale(std::vector<float>{0.07F}), scale(std::vector<float>{0x1p-8F});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<std::uint32_t> table(256);
  Twin<Code> codes(rows * columns);
  const CodeRange range = whole_range(std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8);
  on_both([&](auto at, auto&... queue) {
    run(queue..., SoftmaxTable{256, columns, at(in_scale), at(table)});
    run(queue..., SoftmaxCodes<In, Code>{rows, columns, at(x), at(table), at(scale), at(zero),
                                         range, at(codes)});
  });
  EXPECT_EQ(table.differences(), 0) << columns;
  EXPECT_EQ(codes.differences(), 0) << rows << " x " << columns;
  const auto& made = codes.values();
  EXPECT_GT(*std::max_element(made.begin(), made.end()),
            *std::min_element(made.begin(), made.end()));
}

TEST(SoftmaxOfCodesOnGpu, IsTheCpus) {
  for (const auto& [rows, columns] : {std::pair<int, int>{1, 2}, {5, 10}, {300, 33}, {2, 1000}}) {
    for_each_order([&] {
      check_softmax<std::uint8_t, std::uint8_t>(rows, columns, 0);
      check_softmax<std::uint8_t, std::int8_t>(rows, columns, -128);
      check_softmax<std::int8_t, std::uint8_t>(rows, columns, 0);
      check_softmax<std::int8_t, std::int8_t>(rows, columns, -128);
    });
  }
}

}  // namespace
}  // namespace steelyard::kernels
