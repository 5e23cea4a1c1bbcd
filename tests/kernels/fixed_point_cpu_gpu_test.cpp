// Requantization in fixed point: CPU against GPU, no bit different.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/kernels/fixed_lstm/fixed_lstm.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels::fixed_point_gpu_test {
namespace {

using test::on_both;
using test::random_codes;
using test::Twin;

constexpr Activation kAll[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};
constexpr CodeRange kCodes{-128, 127};

std::vector<std::int32_t> random_sums(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> sums;
  for (std::int64_t i = 0; i < n; ++i) {
    sums.push_back(static_cast<std::int32_t>(random()) >> (8 + random() % 20));
  }
  return sums;
}

void check_sums(std::int64_t rows, std::int64_t channels, Activation activation,
                Rounding rounding) {
  const std::int64_t n = rows * channels;
  std::vector<float> of_weights;
  for (std::int64_t c = 0; c < channels; ++c) {
    of_weights.push_back(std::exp2(-4.0F - static_cast<float>(c % 17) * 0.7F));
  }
  Twin<std::int32_t> acc(random_sums(n, 1)), bias(random_sums(channels, 2));
  Twin<float> weight_scale(of_weights), product_scale(of_weights);
  Twin<float> scale(std::vector<float>{0.02F, 0.05F});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{-7});
  Twin<std::int32_t> multiplier(channels), shift(channels);
  Twin<std::int8_t> codes(n);
  Twin<std::uint8_t> mask((n + 7) / 8);
  on_both([&](auto at, auto&... queue) {
    run(queue..., FixedMultipliers{channels, channels, rounding, at(scale), at(weight_scale),
                                   at(scale) + 1, at(multiplier), at(shift)});
    run(queue..., FixedRequantize{Requantize{rows, channels, activation}, rounding, at(acc),
                                  at(bias), at(product_scale), at(multiplier), at(shift),
                                  at(scale) + 1, at(zero), kCodes, at(codes), at(mask)});
  });
  EXPECT_EQ(multiplier.differences(), 0);
  EXPECT_EQ(shift.differences(), 0);
  EXPECT_EQ(codes.differences(), 0) << rows << " x " << channels;
  EXPECT_EQ(mask.differences(), 0) << rows << " x " << channels;
}

TEST(FixedPointOnGpu, RequantizedSumsAreTheCpus) {
  for (const Activation activation : kAll) {
    for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
      for (const auto& [rows, channels] :
           {std::pair<int, int>{1, 1}, {9, 3}, {100, 40}, {3, 700}}) {
        check_sums(rows, channels, activation, rounding);
      }
    }
  }
}

TEST(FixedPointOnGpu, SumsOfTwoTensorsAndAveragesAreTheCpus) {
  for (const std::int64_t n : {1, 7, 5003}) {
    for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
      Twin<std::int8_t> a(random_codes<std::int8_t>(n, -128, 127, 1));
      Twin<std::int8_t> b(random_codes<std::int8_t>(n, -128, 127, 2));
      Twin<std::int32_t> sums(random_sums(n, 3));
      Twin<float> scale(std::vector<float>{0.1F, 0.004F, 0.09F});
      Twin<std::int32_t> zero(std::vector<std::int32_t>{-128, 7, -3});
      Twin<std::int8_t> sum(n), mean(n), window(n);
      Twin<std::uint8_t> mask((n + 7) / 8), inside((n + 7) / 8);
      on_both([&](auto at, auto&... queue) {
        run(queue..., FixedRequantizeAdd{n,
                                         rounding,
                                         Activation::kRelu,
                                         {at(a), at(scale), at(zero)},
                                         {at(b), at(scale) + 1, at(zero) + 1},
                                         at(scale) + 2,
                                         at(zero) + 2,
                                         kCodes,
                                         at(sum),
                                         at(mask)});
        run(queue..., FixedRequantizeAverage{n, rounding, Average{Average::Kind::kGlobal, 49},
                                             at(sums), at(scale), at(scale) + 2, at(zero), kCodes,
                                             at(mean), at(inside)});
        run(queue...,
            FixedRequantizeAverage{n, rounding, Average{Average::Kind::kWindow, 6}, at(sums),
                                   at(scale), at(scale), at(zero), kCodes, at(window), at(inside)});
      });
      EXPECT_EQ(sum.differences(), 0);
      EXPECT_EQ(mask.differences(), 0);
      EXPECT_EQ(mean.differences(), 0);
      EXPECT_EQ(window.differences(), 0);
      EXPECT_EQ(inside.differences(), 0);
    }
  }
}

TEST(FixedPointOnGpu, FunctionsOfCodesAreTheCpus) {
  Twin<float> scale(std::vector<float>{0.06F, 0.004F, 0.05F});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{-100, 7, -3});
  for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    for (const auto activation : {ActivationFunction::kSigmoid, ActivationFunction::kHardswish,
                                  ActivationFunction::kLeakyRelu}) {
      Twin<std::uint8_t> codes(256);
      Twin<float> slopes(256), rescaled(256);
      on_both([&](auto at, auto&... queue) {
        run(queue..., FixedActivationTable{256,
                                           activation,
                                           rounding,
                                           at(scale),
                                           at(zero),
                                           at(scale) + 2,
                                           at(zero) + 2,
                                           kCodes,
                                           at(codes),
                                           at(slopes),
                                           {.slope = 0.1}});
        run(queue..., FixedRescaleTable{256, rounding, at(scale), at(zero), at(scale) + 2,
                                        at(zero) + 2, at(rescaled)});
      });
      EXPECT_EQ(codes.differences(), 0);
      EXPECT_EQ(rescaled.differences(), 0);
    }
    for (const auto& [rows, columns] : {std::pair<int, int>{1, 1}, {90, 7}, {3, 1000}}) {
      const std::int64_t n = std::int64_t{rows} * columns;
      Twin<std::int8_t> a(random_codes<std::int8_t>(n, -128, 127, 1));
      Twin<std::int8_t> b(random_codes<std::int8_t>(n, -128, 127, 2));
      Twin<std::int8_t> shares(n);
      Twin<float> product(n);
      const StridedIndex same{1, {n}, {1}};
      on_both([&](auto at, auto&... queue) {
        run(queue..., FixedSoftmaxCodes{rows, columns, rounding, at(a), at(scale), at(shares)});
        run(queue..., FixedMultiplyCodes{n,
                                         rounding,
                                         {at(a), at(scale), at(zero)},
                                         same,
                                         {at(b), at(scale) + 1, at(zero) + 1},
                                         same,
                                         at(scale) + 2,
                                         at(zero) + 2,
                                         at(product)});
      });
      EXPECT_EQ(shares.differences(), 0) << rows << " x " << columns;
      EXPECT_EQ(product.differences(), 0) << rows << " x " << columns;
    }
  }
}

TEST(FixedPointOnGpu, StepsOfAnLstmAreTheCpus) {
  Twin<float> scale(std::vector<float>{0.02F, 0.004F, 0.006F, 0.008F});
  Twin<std::int32_t> zero(std::vector<std::int32_t>{-7});
  for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    for (const auto& [rows, columns] : {std::pair<int, int>{1, 1}, {9, 33}, {100, 64}}) {
      const std::int64_t n = std::int64_t{rows} * columns;
      Twin<std::int32_t> of_input(random_sums(4 * n, 1)), of_state(random_sums(4 * n, 2));
      Twin<std::int32_t> bias(random_sums(4 * columns, 3));
      Twin<std::int32_t> cell(std::vector<std::int32_t>(static_cast<std::size_t>(n), 1000));
      Twin<std::int32_t> factors(std::int64_t{sizeof(FixedLstm) / sizeof(std::int32_t)});
      Twin<std::int8_t> state(n);
      Twin<float> y(n);
      on_both([&](auto at, auto&... queue) {
        auto* const rule = reinterpret_cast<FixedLstm*>(at(factors));
        run(queue..., FixedLstmFactors{1, rounding, at(scale), at(scale) + 1, at(scale) + 2,
                                       at(scale) + 3, at(zero), rule});
        for (int step = 0; step < 2; ++step) {
          run(queue..., FixedLstmStep{rows, columns, rounding, rule, at(of_input), 4 * columns,
                                      at(bias), at(of_state), at(cell), at(state), at(y), columns});
        }
      });
      EXPECT_EQ(factors.differences(), 0);
      EXPECT_EQ(cell.differences(), 0);
      EXPECT_EQ(state.differences(), 0);
      EXPECT_EQ(y.differences(), 0);
    }
  }
}

}  // namespace
}  // namespace steelyard::kernels::fixed_point_gpu_test
