// How a dense array divides into channels that share one scale and zero point.
#pragma once

#include <cstdint>

#include "steelyard/kernels/divide.h"

namespace steelyard::kernels {

// Element i belongs to channel (i / inner) % channels. Per tensor: channels = 1. A tensor of shape
// [d0, ..., dk, ...] quantized on axis k: outer = product before k, inner = product after k.
struct ChannelLayout {
  std::int64_t outer = 1;
  std::int64_t channels = 1;
  std::int64_t inner = 0;

  static ChannelLayout per_tensor(std::int64_t size) { return {1, 1, size}; }
  std::int64_t size() const { return outer * channels * inner; }
  // The element that is the i-th of its channel's, in order.
  STEELYARD_HOST_DEVICE std::int64_t element(std::int64_t channel, std::int64_t i) const {
    const std::int64_t before = divide(i, inner);
    return (before * channels + channel) * inner + (i - before * inner);
  }
};

}  // namespace steelyard::kernels
