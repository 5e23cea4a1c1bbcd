// Convolutions that oneDNN may not have. Private to this family.
#pragma once

#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// oneDNN 2.6 gathers the pixels of strided 1x1 convolutions in a buffer, which on AVX2 is too small
// for channels that do not fill a vector: memory after it was overwritten, and with two threads
// gradients of weights were wrong (2 to 6 channels, stride 2).
inline bool is_overrun_by_onednn(const Conv2dShape& s) {
  constexpr std::int64_t kLanes = 8;
  return s.kernel_h == 1 && s.kernel_w == 1 && (s.stride_h > 1 || s.stride_w > 1) &&
         s.in_channels_per_group() % kLanes != 0;
}

}  // namespace steelyard::kernels
