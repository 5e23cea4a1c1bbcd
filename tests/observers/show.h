// Values for observers.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

// Lets the observer see values that divide so into channels; how many were not finite.
inline std::int64_t show(Observer& observer, const kernels::ChannelLayout& layout,
                         const std::vector<float>& values) {
  const Tensor skipped = Tensor::zeros({1}, DType::kI64);
  observer.observe(layout, Tensor::from(values, {static_cast<std::int64_t>(values.size())}),
                   skipped);
  return static_cast<std::int64_t>(skipped.item());
}

}  // namespace steelyard::observers
