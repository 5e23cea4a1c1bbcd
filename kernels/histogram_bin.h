// The one formula for the bin of a value, host and device.
#pragma once

#include <cmath>

#include "kernels/affine.h"
#include "kernels/histogram.h"

namespace steelyard::kernels {

template <typename T>
T histogram_inverse_width(const HistogramGrid& grid) {
  return std::ldexp(T(1), -grid.exponent);
}

// A non-finite value has the extra bin `bins`. Scaling by a power of two is exact unless it
// underflows; floor then still has to see the sign.
template <typename T>
STEELYARD_HOST_DEVICE inline std::int32_t histogram_bin(T value, T inverse_width,
                                                        std::int32_t bins) {
  const bool finite = value - value == T(0);
  const T scaled = std::floor((finite ? value : T(0)) * inverse_width);
  const T floor = value < T(0) && scaled > T(-1) ? T(-1) : scaled;
  return finite ? static_cast<std::int32_t>(floor) + bins / 2 : bins;
}

}  // namespace steelyard::kernels
