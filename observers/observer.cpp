#include "observers/observer.h"

#include <numeric>
#include <stdexcept>

#include "framework/on_device.h"
#include "kernels/counter.h"
#include "kernels/reduce.h"

namespace steelyard::observers {

Extremes extremes_of(const kernels::ChannelLayout& layout, const Tensor& values,
                     const Tensor& non_finite) {
  const Device device = values.device();
  Extremes extremes{Tensor::empty({layout.channels}, DType::kF32, device),
                    Tensor::empty({layout.channels}, DType::kF32, device)};
  const Tensor skipped = Tensor::empty({layout.channels}, DType::kI64, device);
  on_device(device, [&](auto&... queue) {
    kernels::min_max(queue..., layout, values.data<float>(), extremes.lo.data<float>(),
                     extremes.hi.data<float>(), skipped.data<std::int64_t>());
    kernels::add_counts(queue..., layout.channels, skipped.data<std::int64_t>(),
                        non_finite.data<std::int64_t>());
  });
  return extremes;
}

HostExtremes host_extremes_of(const kernels::ChannelLayout& layout, const float* values) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  HostExtremes extremes{std::vector<float>(channels), std::vector<float>(channels), 0};
  std::vector<std::int64_t> skipped(channels);
  kernels::min_max(layout, values, extremes.lo.data(), extremes.hi.data(), skipped.data());
  extremes.non_finite = std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0});
  return extremes;
}

void Observer::observe_extremes(const Extremes&) {
  throw std::logic_error("[observer] " + name() + " needs the values, not their extremes");
}

void HostObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                           const Tensor& non_finite) {
  const Tensor host = values.to(Device{});
  const std::int64_t skipped = observe_values(layout, host.data<float>());
  if (skipped == 0) return;
  const Tensor total = Tensor::from<std::int64_t>({skipped}, {1});
  total.data<std::int64_t>()[0] += static_cast<std::int64_t>(non_finite.item());
  non_finite.copy_from(total);
}

void HostObserver::write_qparams(const QScheme& scheme, const QParamTensors& to) const {
  const std::vector<Range> all = ranges();
  const QParamTensors host{Tensor::empty(to.scale.shape()),
                           Tensor::empty(to.scale.shape(), DType::kI32),
                           Tensor::empty(to.scale.shape(), DType::kU8)};
  for (std::size_t c = 0; c < all.size(); ++c) {
    const QParams params = choose_qparams(all[c], scheme);
    host.scale.span<float>()[c] = params.scale;
    host.zero_point.span<std::int32_t>()[c] = params.zero_point;
    host.zero_range.span<std::uint8_t>()[c] = params.zero_range ? 1 : 0;
  }
  to.scale.copy_from(host.scale);
  to.zero_point.copy_from(host.zero_point);
  to.zero_range.copy_from(host.zero_range);
}

std::vector<NamedBuffer> HostObserver::state() const {
  std::vector<NamedBuffer> state = host_state();
  for (NamedBuffer& buffer : state) buffer.on_host = true;
  return state;
}

}  // namespace steelyard::observers
