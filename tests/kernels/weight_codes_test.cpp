// Weights to codes in one launch: CPU against GPU, no bit different, and against the steps and the
// rules that it is made of.
#include "steelyard/kernels/weight_codes/weight_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_both;
using test::random_codes;
using test::random_reals;
using test::Twin;

// Weights with rows of zeros among them, and where `any`, values that are not finite.
std::vector<float> weights_of(std::int64_t rows, std::int64_t row_size, bool any) {
  std::vector<float> values = random_reals<float>(rows * row_size, 0.2F, 1, any);
  for (std::int64_t r = 2; r < rows; r += 5) {
    std::fill_n(values.begin() + r * row_size, row_size, 0.0F);
  }
  return values;
}

// All that one call reads and writes.
struct Layer {
  Layer(std::int64_t rows, std::int64_t row_size, std::int64_t scales, bool any)
      : weight(weights_of(rows, row_size, any)),
        lo(std::vector<float>(static_cast<std::size_t>(scales), -0.25F)),
        hi(std::vector<float>(static_cast<std::size_t>(scales), 0.5F)),
        steps(random_codes<std::int64_t>(scales, 0, 5, 6)),
        latent(random_reals<float>(scales, 0.05F, 2)),
        initial(std::vector<float>(static_cast<std::size_t>(scales), 0.03F)),
        floor(std::vector<float>(static_cast<std::size_t>(scales), 1e-6F)),
        scale(std::vector<float>(static_cast<std::size_t>(scales), 0.0078125F)),
        pass_scale(scales),
        offset(random_reals<float>(scales, 0.1F, 6, any)),
        zero_point(random_codes<std::int32_t>(scales, -2, 1, 7)),
        pass_zero_point(scales),
        zero_range(random_codes<std::uint8_t>(scales, 0, 1, 3)),
        mask(mask_bytes(rows * row_size)),
        codes(rows * row_size),
        ordered(rows * row_size),
        sums(rows),
        x_scale(std::vector<float>{0.02F}),
        x_zero_point(std::vector<std::int32_t>{117}),
        bias(random_reals<float>(rows, 1, 4, any)),
        deployed(random_reals<float>(rows, 40, 5, any)),
        product_scale(rows),
        bias_codes(rows),
        non_finite(std::vector<std::int64_t>{7}),
        too_large(std::vector<std::int64_t>{5}),
        too_large_bias(std::vector<float>(static_cast<std::size_t>(2 * rows), 0.0F)) {}

  template <typename At>
  WeightQuantizerArrays quantizer(const At& at) {
    return {at(lo),
            at(hi),
            at(steps),
            at(latent),
            at(initial),
            at(floor),
            at(scale),
            at(zero_range),
            at(non_finite),
            at(too_large),
            at(too_large_bias),
            affine ? at(zero_point) : nullptr,
            affine && learns_offset ? at(offset) : nullptr};
  }
  template <typename At>
  BiasOfRows biases(const At& at) {
    return {at(x_scale), at(x_zero_point), at(bias), at(deployed)};
  }
  template <typename At>
  WeightCodeArrays results(const At& at) {
    return {at(codes),         at(mask),       at(pass_scale),
            at(product_scale), at(bias_codes), affine ? at(pass_zero_point) : nullptr,
            at(ordered),       at(sums)};
  }
  void expect_equal() const {
    EXPECT_EQ(lo.differences() + hi.differences() + zero_range.differences(), 0);
    EXPECT_EQ(scale.differences() + pass_scale.differences() + floor.differences(), 0);
    EXPECT_EQ(zero_point.differences() + (affine ? pass_zero_point.differences() : 0), 0);
    EXPECT_EQ(codes.differences() + ordered.differences() + sums.differences(), 0);
    EXPECT_EQ(mask.differences(), 0);
    EXPECT_EQ(product_scale.differences() + bias_codes.differences(), 0);
    EXPECT_EQ(steps.differences() + non_finite.differences(), 0);
    EXPECT_EQ(too_large.differences() + too_large_bias.differences(), 0);
  }

  Twin<float> weight, lo, hi;
  Twin<std::int64_t> steps;
  Twin<float> latent, initial, floor, scale, pass_scale, offset;
  Twin<std::int32_t> zero_point, pass_zero_point;
  bool affine = false;
  bool learns_offset = false;
  Twin<std::uint8_t> zero_range, mask;
  Twin<std::int8_t> codes, ordered;
  Twin<std::int32_t> sums;
  Twin<float> x_scale;
  Twin<std::int32_t> x_zero_point;
  Twin<float> bias, deployed, product_scale;
  Twin<std::int32_t> bias_codes;
  Twin<std::int64_t> non_finite, too_large;
  Twin<float> too_large_bias;
};

struct RowsOfWeights {
  std::int64_t rows, row_size;
};
// Rows that end inside a byte of mask, inside a block and inside a warp; one, none and long ones.
const RowsOfWeights kRows[] = {{0, 9},   {5, 0},   {1, 1},    {1, 4097}, {33, 9},   {8, 27},
                               {300, 1}, {17, 64}, {3, 1152}, {2, 2500}, {13, 260}, {9, 4100}};

RangeRule rule_of(CodeRange codes, double averaging, bool restarts) {
  return {.averaging = averaging, .restarts = restarts, .codes = codes, .symmetric = true};
}

void check(const RowsOfWeights& size, const WeightQuantization& op, bool any) {
  for_each_order([&] {
    Layer layer(size.rows, size.row_size, op.scales, any);
    layer.affine = !op.rule.symmetric;
    layer.learns_offset = op.counted;
    on_both([&](auto at, auto&... queue) {
      run(queue..., QuantizeWeights{op, at(layer.weight), layer.quantizer(at), layer.biases(at),
                                    layer.results(at)});
    });
    layer.expect_equal();
  });
}

void quantize(Layer& layer, const WeightQuantization& op) {
  const auto at = [](auto& twin) { return twin.cpu(); };
  run(QuantizeWeights{op, layer.weight.cpu(), layer.quantizer(at), layer.biases(at),
                      layer.results(at)});
}

TEST(WeightCodesOnGpu, AreTheCpus) {
  for (const RowsOfWeights& size : kRows) {
    for (const ScaleSource source :
         {ScaleSource::kGiven, ScaleSource::kExtremes, ScaleSource::kLatent}) {
      for (const BiasFit fit : {BiasFit::kNothing, BiasFit::kKeepsRoom, BiasFit::kFollows}) {
        if (source == ScaleSource::kExtremes && fit == BiasFit::kKeepsRoom) continue;  // frozen
        SCOPED_TRACE(::testing::Message()
                     << size.rows << " x " << size.row_size << ", source "
                     << static_cast<int>(source) << ", fit " << static_cast<int>(fit));
        WeightQuantization op{
            size.rows, size.row_size, size.rows, source, rule_of({-127, 127}, 0, true), fit};
        check(size, op, true);
        op.rule = rule_of({-8, 7}, 0.25, false);
        op.counted = true;
        op.keeps = fit != BiasFit::kKeepsRoom;
        check(size, op, false);
        WeightQuantization affine = op;
        affine.rule.symmetric = false;
        check(size, affine, true);
        affine.counted = false;
        affine.keeps = true;
        check(size, affine, false);
        if (source == ScaleSource::kExtremes || size.rows == 0) continue;
        op.scales = affine.scales = 1;
        check(size, op, true);
        check(size, affine, true);
      }
    }
  }
}

// Rows of three channels and five taps, and of one tap, whose order is that of their codes.
TEST(WeightCodesOnGpu, AreOrderedByTapsAndAddedUp) {
  for (const std::int64_t taps : {5, 1}) {
    constexpr std::int64_t kRowCount = 21, kChannels = 3;
    const std::int64_t size = kChannels * taps;
    WeightQuantization op{kRowCount, size, kRowCount, ScaleSource::kGiven,
                          rule_of({-128, 127}, 0, true)};
    op.taps = taps;
    check({kRowCount, size}, op, false);
    Layer layer(kRowCount, size, kRowCount, false);
    quantize(layer, op);
    for (std::int64_t row = 0; row < kRowCount; ++row) {
      const std::int8_t* codes = layer.codes.cpu() + row * size;
      std::int32_t sum = 0;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int8_t code = codes[c * taps + tap];
          EXPECT_EQ(layer.ordered.cpu()[row * size + tap * kChannels + c], code);
          sum += code;
        }
      }
      EXPECT_EQ(layer.sums.cpu()[row], sum);
    }
  }
}

// Without a bias and without masks, and with a bias that is only added.
TEST(WeightCodesOnGpu, LeaveOutWhatIsNull) {
  Layer layer(33, 9, 33, false);
  Twin<float> no_floats;
  Twin<std::uint8_t> no_mask;
  const WeightQuantization op{33, 9, 33, ScaleSource::kExtremes, rule_of({-2, 1}, 0, true)};
  on_both([&](auto at, auto&... queue) {
    WeightQuantizerArrays quantizer = layer.quantizer(at);
    quantizer.floor = nullptr;
    WeightCodeArrays to = layer.results(at);
    to.mask = nullptr;
    run(queue..., QuantizeWeights{op, at(layer.weight), quantizer, {}, to});
    to.mask = at(layer.mask);
    WeightQuantization fits = op;
    fits.fit = BiasFit::kFollows;
    BiasOfRows biases = layer.biases(at);
    biases.deployed = nullptr;
    run(queue..., QuantizeWeights{fits, at(layer.weight), quantizer, biases, to});
  });
  layer.expect_equal();
}

// Rows so long that a bias may lack room beside their products: beyond 33,155 of 8 bits.
TEST(WeightCodesOnGpu, LeaveTheSameRoomInLongRows) {
  constexpr std::int64_t kRowCount = 3, kRowSize = 40000;
  Layer layer(kRowCount, kRowSize, kRowCount, false);
  std::vector<float> values = layer.weight.values();
  std::fill_n(values.begin(), kRowSize, 1.0F);
  Twin<float> weight(values), bias(std::vector<float>{250000, -250000, 250000});
  const WeightQuantization op{kRowCount, kRowSize, kRowCount, ScaleSource::kGiven,
                              rule_of({-127, 127}, 0, true)};
  on_both([&](auto at, auto&... queue) {
    BiasOfRows biases = layer.biases(at);
    biases.values = at(bias);
    run(queue..., QuantizeWeights{op, at(weight), layer.quantizer(at), biases, layer.results(at)});
  });
  layer.expect_equal();
  EXPECT_EQ(layer.too_large.values()[0], 5 + 1) << "of the row of ones";
}

// The magnitudes that count are those of code - zero point: up to 255, not 128.
TEST(WeightCodesOnGpu, LeaveTheSameRoomInLongRowsWithZeroPoints) {
  constexpr std::int64_t kRowCount = 2, kRowSize = 32000;
  Layer layer(kRowCount, kRowSize, kRowCount, false);
  layer.affine = true;
  Twin<std::int32_t> zero_point(std::vector<std::int32_t>(kRowCount, -128));
  std::vector<float> values(static_cast<std::size_t>(kRowCount * kRowSize), 0.0F);
  std::fill_n(values.begin(), kRowSize, 255 * 0.0078125F);
  // 32,000 products of at most 138 * 255 leave room for a bias code of 1,021,403,647 at most.
  Twin<float> weight(values), bias(std::vector<float>{170000, 170000});
  RangeRule rule = rule_of({-128, 127}, 0, true);
  rule.symmetric = false;
  const WeightQuantization op{kRowCount, kRowSize, kRowCount, ScaleSource::kGiven, rule};
  on_both([&](auto at, auto&... queue) {
    BiasOfRows biases = layer.biases(at);
    biases.values = at(bias);
    WeightQuantizerArrays quantizer = layer.quantizer(at);
    quantizer.zero_point = at(zero_point);
    run(queue..., QuantizeWeights{op, at(weight), quantizer, biases, layer.results(at)});
  });
  layer.expect_equal();
  EXPECT_EQ(layer.too_large.values()[0], 5 + 1) << "of the row of the largest codes";
  EXPECT_EQ(layer.bias_codes.values()[0], bias_room(std::int64_t{kRowSize} * 138 * 255));
}

Layer with_biases(const std::vector<float>& bias, std::int64_t scales, float x_scale) {
  const auto rows = static_cast<std::int64_t>(bias.size());
  Layer layer(rows, 1, scales, false);
  std::copy(bias.begin(), bias.end(), layer.bias.cpu());
  std::copy(bias.begin(), bias.end(), layer.deployed.cpu());
  std::fill_n(layer.scale.cpu(), scales, 0.03125F);
  layer.x_scale.cpu()[0] = x_scale;
  return layer;
}

// s_w = 2^ceil(log2(|b| / (s_x 2^20))) of dead weights, while ranges follow; every s_w >= |b| /
// (s_x 2^30), and both it and s_x * s_w are normal.
TEST(WeightCodes, HaveScalesThatCarryTheirBias) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> bias{0, 3, -3, 1e8F, nan, -INFINITY, 5e-7F, -2};
  const std::vector<std::uint8_t> dead{1, 1, 0, 0, 1, 0, 1, 0};
  for (const float sx : {0.02F, 3e-37F, 70.0F}) {
    for (const bool ranges_follow : {false, true}) {
      Layer layer = with_biases(bias, 8, sx);
      std::copy(dead.begin(), dead.end(), layer.zero_range.cpu());
      quantize(layer, {8, 1, 8, ScaleSource::kGiven, rule_of({-127, 127}, 0, true),
                       ranges_follow ? BiasFit::kFollows : BiasFit::kKeepsRoom});
      EXPECT_EQ(layer.non_finite.values()[0], 7 + 2);
      EXPECT_EQ(layer.too_large.values()[0], 5);
      for (std::size_t o = 0; o < 8; ++o) {
        const bool finite = std::isfinite(bias[o]);
        const double b = finite ? std::abs(static_cast<double>(bias[o])) : 0;
        const double least = std::max({b / (sx * 0x1p30), 0x1p-126 / sx, 0x1p-126});
        const double own = ranges_follow && dead[o] != 0 && b > 0
                               ? std::exp2(std::ceil(std::log2(b / (sx * 0x1p20))))
                               : 0.03125;
        const float floor = layer.floor.values()[o];
        const float scale = layer.scale.values()[o];
        const float product = layer.product_scale.values()[o];
        const std::int32_t code = layer.bias_codes.values()[o];
        EXPECT_TRUE(floor >= least || !ranges_follow) << o;
        if (floor != 1e-6F) {
          EXPECT_NEAR(floor / least, 1, 1e-6) << o;
        }
        EXPECT_NEAR(scale / std::max(own, least), 1, 1e-6) << o;
        EXPECT_EQ(layer.pass_scale.values()[o], scale) << o;
        EXPECT_GE(product, std::numeric_limits<float>::min()) << o;
        EXPECT_EQ(product, sx * scale) << o;
        EXPECT_LE(std::abs(code), 1 << 30) << o;
        EXPECT_NEAR(code * static_cast<double>(product), finite ? bias[o] : 0,
                    0.51 * static_cast<double>(product) + 1e-7 * b)
            << o;
      }
    }
  }
}

TEST(WeightCodes, OneScaleServesTheLargestBias) {
  const std::vector<float> bias{1, -7, std::numeric_limits<float>::quiet_NaN(), 2};
  WeightQuantization op{
      4, 1, 1, ScaleSource::kGiven, rule_of({-127, 127}, 0, true), BiasFit::kFollows};
  Layer layer = with_biases(bias, 1, 0.5F);
  layer.zero_range.cpu()[0] = 1;
  quantize(layer, op);
  EXPECT_EQ(layer.scale.values()[0], 0x1p-16F) << "14 / 2^20 rounded up to a power of two";
  EXPECT_EQ(layer.product_scale.values(), std::vector<float>(4, 0x1p-17F));
}

// In evaluation the codes are those that training would give next, and nothing is kept.
TEST(WeightCodes, RaiseScalesForOnePassAlone) {
  for (const ScaleSource source : {ScaleSource::kGiven, ScaleSource::kLatent}) {
    WeightQuantization op{1, 1, 1, source, rule_of({-127, 127}, 0, true), BiasFit::kKeepsRoom};
    Layer kept = with_biases({1e9F}, 1, 0.02F);
    Layer passing = with_biases({1e9F}, 1, 0.02F);
    quantize(kept, op);
    op.keeps = false;
    quantize(passing, op);
    EXPECT_NEAR(passing.pass_scale.values()[0] * 0.02 * 0x1p30 / 1e9, 1, 1e-6);
    EXPECT_EQ(passing.pass_scale.values(), kept.pass_scale.values());
    EXPECT_EQ(kept.scale.values(), kept.pass_scale.values());
    EXPECT_EQ(passing.scale.values()[0], 0.03125F);
    EXPECT_EQ(passing.floor.values()[0], 1e-6F);
    EXPECT_EQ(passing.bias_codes.values(), kept.bias_codes.values());
  }
}

// K products of |code| <= 127 and |x - z| <= 138 leave a bias what int32 has beyond their largest
// sum: with one more it is cut and counted, as an export would be refused (export/graph.cpp).
TEST(WeightCodes, CutBiasesThatLackRoom) {
  constexpr std::int64_t kRowSize = 60000, kZeros = 7;
  const WeightQuantization op{4, kRowSize, 1, ScaleSource::kGiven, rule_of({-127, 127}, 0, true)};
  Layer layer(4, kRowSize, 1, false);
  std::fill_n(layer.weight.cpu(), 4 * kRowSize, -1.0F);
  std::fill_n(layer.weight.cpu(), kZeros, 0.0F);
  layer.x_zero_point.cpu()[0] = 117;
  layer.x_scale.cpu()[0] = 1;
  layer.scale.cpu()[0] = 1.0F / 128;  // -1 has the code -127
  const std::int64_t room = std::int64_t{INT32_MAX} - (kRowSize - kZeros) * 127 * 138;
  const auto fits = static_cast<float>(room / 128 * 128);  // the next float is 128 away
  std::fill_n(layer.bias.cpu(), 4, 0.0F);
  layer.bias.cpu()[0] = fits / 128;
  layer.bias.cpu()[1] = -fits / 128;  // its row has no zeros: 7 products less room
  quantize(layer, op);
  EXPECT_EQ(layer.bias_codes.values()[0], fits);
  EXPECT_EQ(layer.bias_codes.values()[1], -(room - kZeros * 127 * 138));
  EXPECT_EQ(layer.too_large.values()[0], 5 + 1);
  EXPECT_EQ(layer.too_large_bias.values()[2], -fits / 128);
  EXPECT_NEAR(layer.too_large_bias.values()[3], (room - kZeros * 127 * 138) / 128.0, 1);
  layer.bias.cpu()[0] = (fits + 128) / 128;
  quantize(layer, op);
  EXPECT_EQ(layer.bias_codes.values()[0], room);
  EXPECT_EQ(layer.too_large.values()[0], 5 + 3);
  EXPECT_EQ(layer.too_large_bias.values()[0], (fits + 128) / 128);
  // What saturates does not fit, even where there is nothing beside it.
  std::fill_n(layer.weight.cpu(), 4 * kRowSize, 0.0F);
  layer.bias.cpu()[1] = 0x1p24F;
  quantize(layer, op);
  EXPECT_EQ(layer.too_large.values()[0], 5 + 4);
}

// NaN that an observer has met is not met again when it is quantized.
TEST(WeightCodes, CountWhatIsNotFiniteOnce) {
  for (const bool observed : {false, true}) {
    for (const ScaleSource source : {ScaleSource::kGiven, ScaleSource::kExtremes}) {
      Layer layer(2, 3, 2, false);
      layer.weight.cpu()[1] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(layer.bias.cpu(), 2, 0.0F);
      WeightQuantization op{2, 3, 2, source, rule_of({-127, 127}, 0, true)};
      op.counted = observed;
      quantize(layer, op);
      const bool counted_before = observed && source == ScaleSource::kGiven;
      EXPECT_EQ(layer.non_finite.values()[0], 7 + (counted_before ? 0 : 1));
    }
  }
}

// The definition, step by step.
TEST(WeightCodes, AreWhatTheStepsGive) {
  constexpr std::int64_t kRowCount = 33, kRowSize = 27;
  const RangeRule rule = rule_of({-127, 127}, 0, true);
  Layer layer(kRowCount, kRowSize, kRowCount, true);
  const auto at = [](auto& twin) { return twin.cpu(); };
  const WeightQuantization op{kRowCount, kRowSize,         kRowCount, ScaleSource::kExtremes,
                              rule,      BiasFit::kFollows};
  run(QuantizeWeights{op, layer.weight.cpu(), layer.quantizer(at), layer.biases(at),
                      layer.results(at)});

  const auto n = static_cast<std::size_t>(kRowCount);
  const ChannelLayout layout{1, kRowCount, kRowSize};
  std::vector<float> lo(n), hi(n), scale(n), floor(n), product(n);
  std::vector<std::int64_t> skipped(n);
  std::vector<std::int32_t> zero(n), bias(n);
  std::vector<std::uint8_t> dead(n), mask(layer.mask.values().size());
  std::vector<std::int8_t> codes(layer.codes.values().size());
  std::int64_t non_finite = 7, too_large = 5;
  run(MinMax<float>{layout, layer.weight.cpu(), lo.data(), hi.data(), skipped.data()});
  for (const std::int64_t count : skipped) non_finite += count;
  run(QparamsOfRanges<float>{kRowCount, rule.codes, true, lo.data(), hi.data(), scale.data(),
                             zero.data(), dead.data()});
  for (std::size_t o = 0; o < n; ++o) {
    const FittedScale fitted = fit_weight_scale(
        scale[o], dead[o] != 0, larger_magnitude(0, layer.deployed.cpu()[o]), 0.02F);
    scale[o] = fitted.scale;
    floor[o] = fitted.floor;
    product[o] = 0.02F * scale[o];
    const float b = layer.bias.cpu()[o];
    const std::int64_t room = INT32_MAX - kRowSize * 255 * 127;
    bias[o] = is_finite(b) ? static_cast<std::int32_t>(std::clamp<std::int64_t>(
                                 quantize_bias(b, product[o]), -room, room))
                           : 0;
    non_finite += is_finite(b) ? 0 : 1;
    too_large += is_finite(b) && std::abs(std::int64_t{quantize_bias(b, product[o])}) > room;
  }
  run(Quantize<float, std::int8_t>{layout, rule.codes, layer.weight.cpu(), scale.data(), nullptr,
                                   codes.data(), mask.data()});
  EXPECT_EQ(layer.lo.values(), lo);
  EXPECT_EQ(layer.hi.values(), hi);
  EXPECT_EQ(layer.scale.values(), scale);
  EXPECT_EQ(layer.pass_scale.values(), scale);
  EXPECT_EQ(layer.floor.values(), floor);
  EXPECT_EQ(layer.zero_range.values(), dead);
  EXPECT_EQ(layer.codes.values(), codes);
  EXPECT_EQ(layer.mask.values(), mask);
  EXPECT_EQ(layer.product_scale.values(), product);
  EXPECT_EQ(layer.bias_codes.values(), bias);
  EXPECT_EQ(layer.non_finite.values()[0], non_finite);
  EXPECT_EQ(layer.too_large.values()[0], too_large);
  EXPECT_GT(too_large, 5) << "the deployed bias is another";
}

}  // namespace
}  // namespace steelyard::kernels
