#include "steelyard/observers/observer.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/counter/counter.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/reduce/reduce.h"

namespace steelyard::observers {
namespace {

void require_channels(const Observer& observer, std::int64_t channels, const Extremes& ends) {
  const bool fits = ends.lo.defined() && ends.hi.defined() && ends.lo.size() == channels &&
                    ends.hi.size() == channels && ends.lo.dtype() == ends.hi.dtype();
  if (fits) return;
  const auto text = [](const Tensor& end) {
    return end.defined() ? std::string(dtype_name(end.dtype())) + " " + shape_string(end.shape())
                         : std::string("an undefined tensor");
  };
  throw std::invalid_argument("[" + observer.name() + "] expected ranges of " +
                              std::to_string(channels) + " channels in one dtype, got " +
                              text(ends.lo) + " to " + text(ends.hi));
}

// A range of nothing may have any ends but NaN.
template <typename T>
void require_finite(const Observer& observer, const Extremes& ends) {
  for (std::int64_t c = 0; c < ends.lo.size(); ++c) {
    const T lo = ends.lo.data<T>()[c];
    const T hi = ends.hi.data<T>()[c];
    if (lo > hi || (std::isfinite(lo) && std::isfinite(hi))) continue;
    throw std::invalid_argument("[" + observer.name() + "] expected a finite range, got [" +
                                std::to_string(lo) + ", " + std::to_string(hi) + "] of channel " +
                                std::to_string(c));
  }
}

}  // namespace

Extremes extremes_of(const kernels::ChannelLayout& layout, const Tensor& values,
                     const Tensor& non_finite) {
  const Device device = values.device();
  Extremes extremes{Tensor::empty({layout.channels}, DType::kF32, device),
                    Tensor::empty({layout.channels}, DType::kF32, device)};
  const Tensor skipped = Tensor::empty({layout.channels}, DType::kI64, device);
  run(device, kernels::MinMax<float>{.layout = layout,
                                     .x = values.data<float>(),
                                     .lo = extremes.lo.data<float>(),
                                     .hi = extremes.hi.data<float>(),
                                     .non_finite = skipped.data<std::int64_t>()});
  run(device, kernels::AddCounts{.n = layout.channels,
                                 .counts = skipped.data<std::int64_t>(),
                                 .total = non_finite.data<std::int64_t>()});
  return extremes;
}

Tensor no_extremes(const Tensor& like) {
  return Tensor::full({2, like.size()}, -std::numeric_limits<double>::infinity(), DType::kF32,
                      like.device());
}

void gather_extremes(const Extremes& part, const Tensor& gathered) {
  run(gathered.device(), kernels::GatherExtremes{.n = part.lo.size(),
                                                 .lo = part.lo.data<float>(),
                                                 .hi = part.hi.data<float>(),
                                                 .maxima = gathered.data<float>()});
}

Extremes gathered_extremes(const Tensor& gathered) {
  const Shape channels{gathered.dim(1)};
  Extremes extremes{Tensor::empty(channels, DType::kF32, gathered.device()),
                    Tensor::empty(channels, DType::kF32, gathered.device())};
  run(gathered.device(), kernels::GatheredExtremes{.n = channels[0],
                                                   .maxima = gathered.data<float>(),
                                                   .lo = extremes.lo.data<float>(),
                                                   .hi = extremes.hi.data<float>()});
  return extremes;
}

void Observer::begin_step() {
  throw std::logic_error("[" + name() + "] measures a step as a whole, not its shards");
}

std::vector<Range> Observer::ranges() const {
  const Extremes ends = range();
  const Tensor lo = ends.lo.to(Device{}).to(DType::kF64);
  const Tensor hi = ends.hi.to(Device{}).to(DType::kF64);
  std::vector<Range> ranges;
  for (std::int64_t c = 0; c < lo.size(); ++c) {
    ranges.push_back({lo.data<double>()[c], hi.data<double>()[c]});
  }
  return ranges;
}

void Observer::write_qparams(const QScheme& scheme, const QParamTensors& to,
                             const Tensor& zero_range) const {
  const Extremes ends = range();
  require_channels(*this, to.scale.size(), ends);
  visit_floating(ends.lo.dtype(), "observer", [&](auto zero) {
    using T = decltype(zero);
    // Looking at those on a GPU would wait for it.
    if (ends.lo.device() == Device{}) require_finite<T>(*this, ends);
    run(ends.lo.device(),
        kernels::QparamsOfRanges<T>{.n = ends.lo.size(),
                                    .range = scheme.code_range(),
                                    .symmetric = scheme.symmetric,
                                    .lo = ends.lo.data<T>(),
                                    .hi = ends.hi.data<T>(),
                                    .scale = to.scale.data<float>(),
                                    .zero_point = to.zero_point.data<std::int32_t>(),
                                    .zero_range = zero_range.data<std::uint8_t>()});
  });
}

}  // namespace steelyard::observers
