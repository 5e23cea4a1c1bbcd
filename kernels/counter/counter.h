// Counters in the memory of the device that counts.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// *total += the sum of n counts, exact up to 2^53.
struct AddCounts {
  std::int64_t n;
  const std::int64_t* counts;
  std::int64_t* total;
  STEELYARD_HOST_DEVICE double term(std::int64_t i) const { return static_cast<double>(counts[i]); }
  STEELYARD_HOST_DEVICE void finish(double sum) const { *total += static_cast<std::int64_t>(sum); }
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
