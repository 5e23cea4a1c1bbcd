#include "steelyard/qat/quantizers/fault_counter.h"

#include <algorithm>

namespace steelyard::qat {

float* FaultCounter::overflowing_biases(std::int64_t outputs, Device device) {
  if (!biases_.defined()) biases_ = Tensor::zeros({outputs, 2});
  return on(device, biases_).data<float>();
}

bool FaultCounter::any(bool may_wait) const {
  if (!may_wait && counts_.device().kind != Device::Kind::kCpu) return false;
  const auto counts = counts_.to(Device{});
  return counts.data<std::int64_t>()[0] > 0 || counts.data<std::int64_t>()[1] > 0;
}

Faults FaultCounter::take() {
  const Tensor counts = counts_.to(Device{});
  const std::int64_t non_finite = counts.data<std::int64_t>()[0];
  const std::int64_t overflows = counts.data<std::int64_t>()[1];
  // On the CPU `counts` may be the counters themselves.
  if (non_finite > 0 || overflows > 0) counts_.fill(0);
  if (overflows == 0) return {non_finite, std::nullopt};
  const Tensor biases = biases_.to(Device{});
  const auto values = biases.span<float>();
  const auto first = std::find_if(values.begin(), values.end(), [](float v) { return v != 0; });
  const BiasOverflow overflow{(first - values.begin()) / 2, first[0], first[1]};
  biases_.fill(0);
  return {non_finite, overflow};
}

}  // namespace steelyard::qat
