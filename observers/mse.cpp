#include "observers/mse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "kernels/cpu/parallel.h"
#include "kernels/fake_quantize.h"
#include "kernels/qparams.h"
#include "observers/counting_observer.h"

namespace steelyard::observers {
namespace {

// Sums over blocks of this many values, added in order, are the same for any number of threads.
constexpr std::int64_t kBlock = 1024;

double block_error(std::span<const float> values, const QParams& params, kernels::CodeRange codes) {
  float quantized[kBlock];
  const auto n = static_cast<std::int64_t>(values.size());
  kernels::fake_quantize_forward(kernels::ChannelLayout::per_tensor(n), codes, values.data(),
                                 &params.scale, &params.zero_point, quantized);
  constexpr std::size_t kLanes = 8;  // independent sums, so that additions overlap
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double error =
          static_cast<double>(quantized[i + lane]) - static_cast<double>(values[i + lane]);
      sums[lane] += error * error;
    }
  }
  for (; i < values.size(); ++i) {
    const double error = static_cast<double>(quantized[i]) - static_cast<double>(values[i]);
    sums[0] += error * error;
  }
  return std::accumulate(sums, sums + kLanes, 0.0);
}

Range shrunken(const Range& range, int factor) {
  const auto scaled = [&](double end) {
    return static_cast<double>(static_cast<float>(end * factor / MseObserver::kFactors));
  };
  return {scaled(range.lo), scaled(range.hi)};
}

Range best_range(std::span<const float> values, const Range& extremes, const QScheme& scheme) {
  Range best = extremes;
  double least = quantization_error(values, extremes, scheme);
  for (int factor = MseObserver::kFactors - 1; factor >= 1 && least > 0; --factor) {
    const Range range = shrunken(extremes, factor);
    if (range.lo == 0 && range.hi == 0) break;  // denormal: nothing is left
    const double error = quantization_error(values, range, scheme);
    if (error < least) {
      least = error;
      best = range;
    }
  }
  return best;
}

}  // namespace

double quantization_error(std::span<const float> values, const Range& range,
                          const QScheme& scheme) {
  const QParams params = choose_qparams(range, scheme);
  const auto n = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> errors(static_cast<std::size_t>(blocks));
  constexpr std::int64_t kBlocksPerThread = 32;
  kernels::parallel_for(blocks, kBlocksPerThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * kBlock;
      const auto size = static_cast<std::size_t>(std::min(kBlock, n - first));
      errors[static_cast<std::size_t>(b)] = block_error(
          values.subspan(static_cast<std::size_t>(first), size), params, scheme.code_range());
    }
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

MseObserver::MseObserver(std::int64_t channels, const QScheme& scheme, double averaging_constant)
    : scheme_(scheme),
      averaging_constant_(averaging_constant),
      lo_(Tensor::empty({channels})),
      hi_(Tensor::empty({channels})) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[mse] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
  MseObserver::reset();
}

std::int64_t MseObserver::observe_values(const kernels::ChannelLayout& layout,
                                         const float* values) {
  const HostExtremes extremes = host_extremes_of(layout, values);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (extremes.lo[i] > extremes.hi[i]) continue;  // nothing finite: the state stays
    const std::vector<float> finite = finite_values(layout, values, c);
    const Range range = best_range(finite, {extremes.lo[i], extremes.hi[i]}, scheme_);
    kernels::update_range(lo_.data<float>()[c], hi_.data<float>()[c], static_cast<float>(range.lo),
                          static_cast<float>(range.hi), averaging_constant_);
  }
  return extremes.non_finite;
}

std::vector<Range> MseObserver::ranges() const {
  std::vector<Range> ranges;
  for (std::int64_t c = 0; c < lo_.size(); ++c) {
    ranges.push_back({lo_.data<float>()[c], hi_.data<float>()[c]});
  }
  return ranges;
}

void MseObserver::reset() {
  lo_.fill(std::numeric_limits<float>::infinity());
  hi_.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> MseObserver::host_state() const { return {{"lo", lo_}, {"hi", hi_}}; }

}  // namespace steelyard::observers
