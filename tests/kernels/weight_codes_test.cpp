// Weights to codes in one launch: CPU against GPU, no bit different, and against the steps it is
// made of.
#include "kernels/weight_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/fake_quantize.h"
#include "kernels/reduce.h"
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
        step_scale(scales),
        zero_range(random_codes<std::uint8_t>(scales, 0, 1, 3)),
        mask(mask_bytes(rows * row_size)),
        codes(rows * row_size),
        x_scale(std::vector<float>{0.02F}),
        bias(random_reals<float>(rows, 1, 4, any)),
        deployed(random_reals<float>(rows, 40, 5, any)),
        product_scale(rows),
        bias_codes(rows),
        non_finite(std::vector<std::int64_t>{7}) {}

  template <typename At>
  WeightQuantizer quantizer(const At& at) {
    return {at(lo),    at(hi),    at(steps),      at(latent),    at(initial),
            at(floor), at(scale), at(zero_range), at(non_finite)};
  }
  template <typename At>
  BiasBehind behind(const At& at) {
    return {at(x_scale), at(bias), at(deployed)};
  }
  template <typename At>
  WeightCodeArrays results(const At& at) {
    return {at(codes), at(mask), at(step_scale), at(product_scale), at(bias_codes)};
  }
  void expect_equal() const {
    EXPECT_EQ(lo.differences() + hi.differences() + zero_range.differences(), 0);
    EXPECT_EQ(scale.differences() + step_scale.differences() + floor.differences(), 0);
    EXPECT_EQ(codes.differences(), 0);
    EXPECT_EQ(mask.differences(), 0);
    EXPECT_EQ(product_scale.differences() + bias_codes.differences(), 0);
    EXPECT_EQ(steps.differences() + non_finite.differences(), 0);
  }

  Twin<float> weight, lo, hi;
  Twin<std::int64_t> steps;
  Twin<float> latent, initial, floor, scale, step_scale;
  Twin<std::uint8_t> zero_range, mask;
  Twin<std::int8_t> codes;
  Twin<float> x_scale, bias, deployed, product_scale;
  Twin<std::int32_t> bias_codes;
  Twin<std::int64_t> non_finite;
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
    on_both([&](auto at, auto&... queue) {
      quantize_weights(queue..., op, at(layer.weight), layer.quantizer(at), layer.behind(at),
                       layer.results(at));
    });
    layer.expect_equal();
  });
}

TEST(WeightCodesOnGpu, AreTheCpus) {
  for (const RowsOfWeights& size : kRows) {
    for (const ScaleSource source :
         {ScaleSource::kGiven, ScaleSource::kExtremes, ScaleSource::kLatent}) {
      for (const bool fits_bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << size.rows << " x " << size.row_size << ", source "
                                        << static_cast<int>(source) << ", fits " << fits_bias);
        WeightQuantization op{
            size.rows, size.row_size, size.rows, source, rule_of({-127, 127}, 0, true), fits_bias};
        check(size, op, true);
        op.rule = rule_of({-8, 7}, 0.25, false);
        check(size, op, false);
        if (source == ScaleSource::kExtremes || size.rows == 0) continue;
        op.scales = 1;
        check(size, op, true);
      }
    }
  }
}

// Without a bias and without masks, and with a bias that is only added.
TEST(WeightCodesOnGpu, LeaveOutWhatIsNull) {
  Layer layer(33, 9, 33, false);
  Twin<float> no_floats;
  Twin<std::uint8_t> no_mask;
  const WeightQuantization op{33, 9, 33, ScaleSource::kExtremes, rule_of({-2, 1}, 0, true), false};
  on_both([&](auto at, auto&... queue) {
    WeightQuantizer quantizer = layer.quantizer(at);
    quantizer.floor = nullptr;
    WeightCodeArrays to = layer.results(at);
    to.mask = nullptr;
    quantize_weights(queue..., op, at(layer.weight), quantizer, {nullptr, nullptr, nullptr}, to);
    to.mask = at(layer.mask);
    WeightQuantization fits = op;
    fits.fits_bias = true;
    quantize_weights(queue..., fits, at(layer.weight), quantizer,
                     {at(layer.x_scale), at(layer.bias), nullptr}, to);
  });
  layer.expect_equal();
}

// The definition, step by step.
TEST(WeightCodes, AreWhatTheStepsGive) {
  constexpr std::int64_t kRowCount = 33, kRowSize = 27;
  const RangeRule rule = rule_of({-127, 127}, 0, true);
  Layer layer(kRowCount, kRowSize, kRowCount, true);
  const auto at = [](auto& twin) { return twin.cpu(); };
  const std::vector<float> x_scale{0.02F};
  const WeightQuantization op{kRowCount, kRowSize, kRowCount, ScaleSource::kExtremes, rule, true};
  quantize_weights(op, layer.weight.cpu(), layer.quantizer(at), layer.behind(at),
                   layer.results(at));

  const auto n = static_cast<std::size_t>(kRowCount);
  const ChannelLayout layout{1, kRowCount, kRowSize};
  std::vector<float> lo(n), hi(n), scale(n), floor(n), product(n);
  std::vector<std::int64_t> skipped(n);
  std::vector<std::int32_t> zero(n), bias(n);
  std::vector<std::uint8_t> dead(n), mask(layer.mask.values().size());
  std::vector<std::int8_t> codes(layer.codes.values().size());
  std::int64_t non_finite = 7;
  min_max(layout, layer.weight.cpu(), lo.data(), hi.data(), skipped.data());
  for (const std::int64_t count : skipped) non_finite += count;
  qparams_of_ranges(kRowCount, rule.codes, true, lo.data(), hi.data(), scale.data(), zero.data(),
                    dead.data());
  fit_weight_scales(kRowCount, layer.deployed.cpu(), x_scale.data(), kRowCount, dead.data(),
                    scale.data(), floor.data());
  quantize(layout, rule.codes, layer.weight.cpu(), scale.data(), nullptr, codes.data(), mask.data(),
           &non_finite);
  quantize_biases(kRowCount, layer.bias.cpu(), x_scale.data(), kRowCount, scale.data(),
                  product.data(), bias.data(), &non_finite);
  EXPECT_EQ(layer.lo.values(), lo);
  EXPECT_EQ(layer.hi.values(), hi);
  EXPECT_EQ(layer.scale.values(), scale);
  EXPECT_EQ(layer.step_scale.values(), scale);
  EXPECT_EQ(layer.floor.values(), floor);
  EXPECT_EQ(layer.zero_range.values(), dead);
  EXPECT_EQ(layer.codes.values(), codes);
  EXPECT_EQ(layer.mask.values(), mask);
  EXPECT_EQ(layer.product_scale.values(), product);
  EXPECT_EQ(layer.bias_codes.values(), bias);
  EXPECT_EQ(layer.non_finite.values()[0], non_finite);
}

}  // namespace
}  // namespace steelyard::kernels
