// Types that the searches for a range share, host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// Ends of a range as numbers: lo > hi means that nothing was seen.
struct RangeEnds {
  double lo;
  double hi;
};

// The least of values that come one by one in any order; of equal ones that of the lowest index.
// NaN is never the least.
struct Least {
  double value = INFINITY;
  std::int32_t index = 0;

  STEELYARD_HOST_DEVICE void meet(double other, std::int32_t at) {
    const bool less = other < value || (other == value && at < index);
    value = less ? other : value;
    index = less ? at : index;
  }
};

}  // namespace steelyard::kernels
