#include "kernels/counter.h"

namespace steelyard::kernels {

void add_counts(std::int64_t n, const std::int64_t* counts, std::int64_t* total) {
  for (std::int64_t i = 0; i < n; ++i) *total += counts[i];
}

void count_one(std::int64_t* counter) { ++*counter; }

}  // namespace steelyard::kernels
