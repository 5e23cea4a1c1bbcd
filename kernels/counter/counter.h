// Counters in the memory of the device that counts.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// *total += the sum of n counts, of which there are no more than channels of a tensor.
struct AddCounts {
  std::int64_t n;
  const std::int64_t* counts;
  std::int64_t* total;
};

// *counter += 1.
struct CountOne {
  std::int64_t* counter;
  STEELYARD_HOST_DEVICE void operator()() const { ++*counter; }
};

// *counter += 1 where *value is above 0.
struct CountIfPositive {
  const double* value;
  std::int64_t* counter;
  STEELYARD_HOST_DEVICE void operator()() const { *counter += *value > 0 ? 1 : 0; }
};

using CounterKernels = KernelList<AddCounts, CountOne, CountIfPositive>;

}  // namespace steelyard::kernels
