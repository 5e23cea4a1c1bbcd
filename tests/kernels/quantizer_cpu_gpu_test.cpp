// Quantizers, observers and what weights remember: CPU against GPU, no bit different.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/histogram/formulas.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/oscillation/oscillation.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_both;
using test::random_codes;
using test::random_reals;
using test::Twin;

const ChannelLayout kLayouts[] = {{1, 1, 0},    {1, 1, 1},   {1, 1, 7},    {1, 1, 5003}, {1, 5, 77},
                                  {3, 4, 8},    {29, 7, 1},  {1, 3, 2048}, {2, 3, 300},  {0, 3, 4},
                                  {1, 300, 24}, {700, 8, 1}, {50, 3, 1},   {20, 2, 2}};

std::vector<std::int32_t> zero_points(std::int64_t channels, CodeRange range) {
  return random_codes<std::int32_t>(channels, range.qmin, range.qmax, 7);
}

template <typename T>
std::vector<T> scales(std::int64_t channels) {
  std::vector<T> scale;
  for (std::int64_t c = 0; c < channels; ++c) {
    scale.push_back(c % 5 == 4 ? std::numeric_limits<T>::min() : T(0.5) / T(1 + c % 7));
  }
  return scale;
}

template <typename T, typename Code>
void check_quantizer(const ChannelLayout& layout, CodeRange range, bool with_zero_point) {
  const std::int64_t n = layout.size();
  Twin<T> x(random_reals<T>(n, T(20), 1)), grad(random_reals<T>(n, T(1), 2));
  Twin<T> scale(scales<T>(layout.channels));
  Twin<std::int32_t> zero = with_zero_point
                                ? Twin<std::int32_t>(zero_points(layout.channels, range))
                                : Twin<std::int32_t>();
  Twin<T> clipped(n), real(n), masked(n);
  Twin<Code> codes(n), codes_alone(n);
  Twin<std::uint8_t> mask(mask_bytes(n));
  Twin<std::int64_t> nan(std::vector<std::int64_t>{11});
  on_both([&](auto at, auto&... queue) {
    run(queue...,
        ClippedGradient<T>{layout, range, at(x), at(scale), at(zero), at(grad), at(clipped)});
    run(queue...,
        Quantize<T, Code>{layout, range, at(x), at(scale), at(zero), at(codes), at(mask), at(nan)});
    run(queue..., Quantize<T, Code>{layout, range, at(x), at(scale), at(zero), at(codes_alone)});
    run(queue..., Dequantize<T, Code>{layout, at(codes), at(scale), at(zero), at(real)});
    run(queue..., ApplyMask<T>{n, at(mask), at(grad), at(masked)});
    run(queue..., ApplyMask<T>{n, at(mask), at(grad), at(grad)});
  });
  EXPECT_EQ(clipped.differences(), 0);
  EXPECT_EQ(codes.differences(), 0);
  EXPECT_EQ(codes_alone.differences(), 0);
  EXPECT_EQ(mask.differences(), 0);
  EXPECT_EQ(nan.differences(), 0);
  EXPECT_EQ(real.differences(), 0);
  EXPECT_EQ(masked.differences(), 0);
  EXPECT_EQ(grad.differences(), 0) << "in place";
  const auto& values = x.values();
  EXPECT_EQ(nan.values()[0],
            11 + std::count_if(values.begin(), values.end(), [](T v) { return v != v; }));
}

TEST(FakeQuantizeOnGpu, IsTheCpus) {
  for (const ChannelLayout& layout : kLayouts) {
    SCOPED_TRACE(::testing::Message()
                 << layout.outer << ", " << layout.channels << ", " << layout.inner);
    check_quantizer<float, std::uint8_t>(layout, {0, 255}, true);
    check_quantizer<float, std::int8_t>(layout, {-127, 127}, false);
    check_quantizer<double, std::uint8_t>(layout, {0, 15}, true);
    check_quantizer<double, std::int8_t>(layout, {-8, 7}, true);
  }
}

// What clips gets the gradient and what is inside gets none: together they are grad.
TEST(FakeQuantize, ClippedGradientIsTheRestOfTheStraightThroughOne) {
  const ChannelLayout layout{3, 5, 7};
  const CodeRange range{-8, 7};
  const auto x = random_reals<float>(layout.size(), 3, 1);
  const auto grad = random_reals<float>(layout.size(), 1, 2, false);
  const auto scale = scales<float>(layout.channels);
  const auto zero = zero_points(layout.channels, range);
  std::vector<float> through(x.size()), clipped(x.size());
  std::vector<std::int8_t> codes(x.size());
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(mask_bytes(layout.size())));
  run(Quantize<float, std::int8_t>{layout, range, x.data(), scale.data(), zero.data(), codes.data(),
                                   mask.data()});
  run(ApplyMask<float>{layout.size(), mask.data(), grad.data(), through.data()});
  run(ClippedGradient<float>{layout, range, x.data(), scale.data(), zero.data(), grad.data(),
                             clipped.data()});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(through[i] + clipped[i], grad[i]) << i;
}

template <typename T>
void check_min_max(const ChannelLayout& layout, bool any) {
  Twin<T> x(random_reals<T>(layout.size(), T(2), 3, any));
  Twin<T> lo(layout.channels), hi(layout.channels);
  Twin<std::int64_t> skipped(layout.channels), none;
  Twin<T> lo_alone(layout.channels), hi_alone(layout.channels);
  on_both([&](auto at, auto&... queue) {
    run(queue..., MinMax<T>{layout, at(x), at(lo), at(hi), at(skipped)});
    run(queue..., MinMax<T>{layout, at(x), at(lo_alone), at(hi_alone), at(none)});
  });
  EXPECT_EQ(lo.differences(), 0);
  EXPECT_EQ(hi.differences(), 0);
  EXPECT_EQ(skipped.differences(), 0);
  EXPECT_EQ(lo_alone.differences(), 0);
  EXPECT_EQ(hi_alone.differences(), 0);
}

TEST(RangesOnGpu, AreTheCpus) {
  for (const ChannelLayout& layout : kLayouts) {
    SCOPED_TRACE(::testing::Message()
                 << layout.outer << ", " << layout.channels << ", " << layout.inner);
    for_each_order([&] {
      check_min_max<float>(layout, true);
      check_min_max<double>(layout, false);
    });
  }
}

void check_histogram(std::int64_t n, std::int64_t bins) {
  std::vector<float> values = random_reals<float>(n, 2.0F, 4);
  float amax = 0;
  for (float& v : values) {
    if (std::abs(v) > 1e30F && !std::isinf(v)) v = 0.25F;
    if (std::isfinite(v)) amax = std::max(amax, std::abs(v));
  }
  Twin<float> x(std::move(values)), lo(1), hi(1);
  Twin<std::int64_t> counts(bins);
  Twin<std::int32_t> exponent(std::vector<std::int32_t>{smallest_exponent(amax, bins)});
  on_both([&](auto at, auto&... queue) {
    const ChannelHistograms histogram{1, bins, at(counts), at(exponent), at(lo), at(hi)};
    for (int i = 0; i < 2; ++i) {
      run(queue..., CountInHistograms{histogram, ChannelLayout::per_tensor(n), at(x)});
    }
  });
  EXPECT_EQ(counts.differences(), 0) << n << " values in " << bins << " bins";
}

TEST(HistogramsOnGpu, AreTheCpus) {
  for (const std::int64_t n : {0, 1, 255, 20011}) {
    for (const std::int64_t bins : {2, 6, 2048}) check_histogram(n, bins);
  }
}

TEST(HistogramsOnGpu, MoreBinsThanABlockHoldsAreRefused) {
  constexpr std::int64_t kMany = 1 << 20;
  const ChannelHistograms histogram{1, kMany, nullptr, nullptr, nullptr, nullptr};
  const CountInHistograms kernel{histogram, ChannelLayout::per_tensor(kMany), nullptr};
  EXPECT_THROW(run(CudaQueue{}, kernel), std::invalid_argument);
}

// Codes that often turn around, so that some weights freeze.
TEST(OscillationsOnGpu, AreTheCpus) {
  const ChannelLayout layout{1, 7, 431};
  const std::int64_t n = layout.size();
  const CodeRange range{-8, 7};
  Twin<std::int8_t> code(n), direction(n);
  Twin<float> frequency(n), mean(n), x(random_reals<float>(n, 1, 5, false)),
      grad(random_reals<float>(n, 1, 6, false)), scale(scales<float>(layout.channels));
  Twin<double> wide_x(random_reals<double>(n, 1, 5, false)),
      wide_grad(random_reals<double>(n, 1, 6, false)), wide_scale(scales<double>(layout.channels));
  Twin<std::uint8_t> frozen(n);
  Twin<std::int64_t> counts(2);
  Twin<std::int32_t> zero_point(random_codes<std::int32_t>(layout.channels, -8, 7, 9)), no_zeros;
  Twin<float> no_grad, freeze_above(std::vector<float>{0.45F});
  for (unsigned step = 0; step < 12; ++step) {
    Twin<std::int8_t> codes(random_codes<std::int8_t>(n, step % 3 == 0 ? -8 : -1, 1, step));
    Twin<double> lambda(std::vector<double>{step % 4 == 0 ? 0 : 0.01});
    on_both([&](auto at, auto&... queue) {
      const OscillationState state{at(code), at(direction), at(frequency), at(mean), at(frozen)};
      const std::int32_t* zeros = step % 5 == 0 ? at(zero_point) : at(no_zeros);
      if (step == 0) {
        run(queue..., BeginOscillations{n, at(codes), state});
      } else {
        run(queue..., TrackOscillations{n, at(codes), 0.1F, at(freeze_above), state});
      }
      run(queue..., CountOscillations{n, 0.2F, state, at(counts)});
      run(queue..., AddDampingGradient<float>{layout, range, at(lambda), at(x), at(scale), zeros,
                                              at(codes), at(grad)});
      run(queue..., AddDampingGradient<double>{layout, range, at(lambda), at(wide_x),
                                               at(wide_scale), zeros, at(codes), at(wide_grad)});
      run(queue..., HoldFrozen{layout, state, at(scale), zeros, at(x),
                               step % 2 == 0 ? at(grad) : at(no_grad)});
    });
    ASSERT_EQ(counts.differences(), 0) << step;
  }
  EXPECT_EQ(code.differences(), 0);
  EXPECT_EQ(direction.differences(), 0);
  EXPECT_EQ(frequency.differences(), 0);
  EXPECT_EQ(mean.differences(), 0);
  EXPECT_EQ(frozen.differences(), 0);
  EXPECT_EQ(x.differences(), 0);
  EXPECT_EQ(grad.differences(), 0);
  EXPECT_EQ(wide_grad.differences(), 0);
  EXPECT_GT(counts.values()[0], 50) << "frozen";
  EXPECT_GT(counts.values()[1], 50) << "oscillating";
}

// Extremes of steps, some of which saw nothing finite.
struct Step {
  std::vector<float> lo, hi;
  Step(std::int64_t channels, unsigned seed) {
    lo = random_reals<float>(channels, 3, seed, false);
    hi = random_reals<float>(channels, 3, seed + 100, false);
    for (std::size_t c = 0; c < lo.size(); ++c) {
      if (lo[c] > hi[c]) std::swap(lo[c], hi[c]);
      lo[c] += 0.0F, hi[c] += 0.0F;
      if ((c + seed) % 9 == 0) lo[c] = INFINITY, hi[c] = -INFINITY;
      if ((c + seed) % 17 == 1) lo[c] = -3e38F, hi[c] = 3e38F;
    }
  }
};

TEST(QuantizerStateOnGpu, ObserversAndParametersAreTheCpus) {
  for (const std::int64_t channels : {0, 1, 3, 600}) {
    const auto start = [&](float value) {
      return std::vector<float>(static_cast<std::size_t>(channels), value);
    };
    Twin<float> lo(start(INFINITY)), hi(start(-INFINITY)), mean_lo(start(INFINITY)),
        mean_hi(start(-INFINITY));
    Twin<std::int64_t> steps(std::vector<std::int64_t>(static_cast<std::size_t>(channels), 0));
    Twin<float> scale(channels), narrow_scale(channels);
    Twin<std::int32_t> zero(channels), narrow_zero(channels);
    Twin<std::uint8_t> flags(channels), no_flags;
    Twin<std::int64_t> no_steps;
    for (unsigned seed = 0; seed < 6; ++seed) {
      const Step step(channels, seed);
      Twin<float> step_lo(step.lo), step_hi(step.hi);
      on_both([&](auto at, auto&... queue) {
        run(queue...,
            UpdateExtremes{channels, 0, at(step_lo), at(step_hi), at(lo), at(hi), at(no_steps)});
        run(queue..., UpdateExtremes{channels, static_cast<double>(0.3F), at(step_lo), at(step_hi),
                                     at(mean_lo), at(mean_hi), at(steps)});
        run(queue..., QparamsOfRanges<float>{channels,
                                             {0, 255},
                                             false,
                                             at(mean_lo),
                                             at(mean_hi),
                                             at(scale),
                                             at(zero),
                                             at(flags)});
        run(queue..., QparamsOfRanges<float>{channels,
                                             {-127, 127},
                                             true,
                                             at(lo),
                                             at(hi),
                                             at(narrow_scale),
                                             at(narrow_zero),
                                             at(no_flags)});
        run(queue..., RescaleQparams{
                          channels, {-127, 127}, {-7, 7}, true, at(narrow_scale), at(narrow_zero)});
        if (seed % 2 == 1) {
          run(queue..., RescaleQparams{channels, {0, 255}, {0, 15}, false, at(scale), at(zero)});
        }
      });
      EXPECT_EQ(lo.differences() + hi.differences(), 0);
      EXPECT_EQ(mean_lo.differences() + mean_hi.differences() + steps.differences(), 0);
      EXPECT_EQ(scale.differences() + zero.differences() + flags.differences(), 0);
      EXPECT_EQ(narrow_scale.differences() + narrow_zero.differences(), 0);
    }
  }
}

// One launch is what the functions are that it stands for.
TEST(QuantizerStateOnGpu, RangesOfValuesAreTheCpusAndTheDefinition) {
  const RangeRule rules[] = {{.averaging = 0.1},
                             {.codes = {-127, 127}, .symmetric = true},
                             {.averaging = 0.5, .restarts = true, .codes = {-8, 7}}};
  for (const RangeRule& rule : rules) {
    for (const std::int64_t n : {0, 1, 255, 2049, 70001}) {
      for (const bool any : {false, true}) {
        SCOPED_TRACE(::testing::Message() << n << " values, any " << any);
        for_each_order([&] {
          Twin<float> x(random_reals<float>(n, 3, 5, any));
          test::RangeTwins range;
          on_both([&](auto at, auto&... queue) {
            run(queue..., ObserveValues{rule, range.quantizer(at), n, at(x)});
          });
          range.expect_equal();

          float lo, hi;
          std::int64_t skipped;
          run(MinMax<float>{ChannelLayout::per_tensor(n), x.cpu(), &lo, &hi, &skipped});
          float want_lo = rule.restarts ? INFINITY : -0.5F,
                want_hi = rule.restarts ? -INFINITY : 0.25F;
          std::int64_t steps = 1;
          run(UpdateExtremes{1, rule.averaging, &lo, &hi, &want_lo, &want_hi, &steps});
          float scale;
          std::int32_t zero;
          std::uint8_t zero_range;
          run(QparamsOfRanges<float>{1, rule.codes, rule.symmetric, &want_lo, &want_hi, &scale,
                                     &zero, &zero_range});
          EXPECT_EQ(range.lo.values()[0], want_lo);
          EXPECT_EQ(range.hi.values()[0], want_hi);
          EXPECT_EQ(range.steps.values()[0], rule.restarts ? 1 : steps);
          EXPECT_EQ(range.scale.values()[0], scale);
          EXPECT_EQ(range.zero_point.values()[0], zero);
          EXPECT_EQ(range.zero_range.values()[0], zero_range);
          EXPECT_EQ(range.non_finite.values()[0], 3 + skipped);
        });
      }
    }
  }
}

TEST(QuantizerStateOnGpu, LearnedScalesAreTheCpus) {
  for (const std::int64_t channels : {0, 1, 5, 700}) {
    std::vector<float> values = random_reals<float>(channels, 0.3F, 1);
    Twin<float> latent(values), initial(scales<float>(channels)),
        floor(random_reals<float>(channels, 1e-3F, 2, false)), scale(channels),
        grad(random_reals<float>(channels, 1, 3)), offset(random_reals<float>(channels, 0.4F, 4)),
        no_offset, grad_offset(random_reals<float>(channels, 1, 5));
    Twin<float> pass_scale(channels), begun_initial(channels), begun_latent(channels),
        begun_offset(channels);
    Twin<std::int32_t> zero(channels), pass_zero(channels);
    Twin<std::int64_t> non_finite(std::vector<std::int64_t>{1}), uncounted;
    on_both([&](auto at, auto&... queue) {
      run(queue..., FollowLatents{channels,
                                  {0, 255},
                                  at(latent),
                                  at(initial),
                                  at(floor),
                                  at(offset),
                                  at(scale),
                                  at(zero),
                                  at(non_finite),
                                  at(pass_scale),
                                  at(pass_zero)});
      run(queue..., FollowLatents{channels,
                                  {0, 255},
                                  at(latent),
                                  at(initial),
                                  at(floor),
                                  at(no_offset),
                                  at(scale),
                                  at(zero),
                                  at(uncounted),
                                  nullptr,
                                  nullptr});
      run(queue..., ChainLatentGradients{channels,
                                         {0, 255},
                                         at(scale),
                                         at(initial),
                                         at(zero),
                                         at(offset),
                                         at(grad),
                                         at(grad_offset)});
      run(queue..., ChainLatentGradients{channels,
                                         {0, 255},
                                         at(scale),
                                         at(initial),
                                         nullptr,
                                         at(no_offset),
                                         at(grad),
                                         at(no_offset)});
      run(queue..., BeginLatents{channels,
                                 {0, 255},
                                 at(scale),
                                 at(zero),
                                 at(begun_initial),
                                 at(begun_latent),
                                 at(begun_offset)});
    });
    EXPECT_EQ(scale.differences() + zero.differences() + non_finite.differences(), 0);
    EXPECT_EQ(grad.differences() + grad_offset.differences(), 0);
    EXPECT_EQ(begun_initial.differences() + begun_latent.differences(), 0);
    EXPECT_EQ(begun_offset.differences(), 0);
  }
}

}  // namespace
}  // namespace steelyard::kernels
