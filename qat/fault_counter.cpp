#include "steelyard/qat/fault_counter.h"

#include <algorithm>

namespace steelyard::qat {

float* FaultCounter::overflowing_biases(std::int64_t outputs, Device device) {
  if (!biases_.defined()) biases_ = Tensor::zeros({outputs, 2});
  return on(device, biases_).data<float>();
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
