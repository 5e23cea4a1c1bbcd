// Sums of terms in the order of kernels/quant_plan/quant_sums.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "steelyard/kernels/cpu/stream.h"
#include "steelyard/kernels/quant_plan/quant_sums.h"

namespace steelyard::kernels {

// The sum of one chunk's terms. Lanes are variables: GCC 12 keeps no array of them in registers.
template <typename T>
double sum_chunk(std::int64_t count, const T* terms) {
  static_assert(kSumLanes == 32);
  using Eight [[gnu::vector_size(8 * sizeof(T))]] = T;
  const auto add = [](Eight& lanes, const T* from) {
    Eight more;
    std::memcpy(&more, from, sizeof more);
    lanes += more;
  };
  Eight a{}, b{}, c{}, d{};
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    add(a, terms + i);
    add(b, terms + i + 8);
    add(c, terms + i + 16);
    add(d, terms + i + 24);
  }
  if (i < count) {
    alignas(kCacheLine) T rest[kSumLanes];
    for (std::int64_t k = 0; k < kSumLanes; ++k) rest[k] = i + k < count ? terms[i + k] : T(0);
    add(a, rest);  // a lane without a term stays what it is: none is -0
    add(b, rest + 8);
    add(c, rest + 16);
    add(d, rest + 24);
  }
  const Eight sums = (a + c) + (b + d);
  T of[8];
  std::memcpy(of, &sums, sizeof of);
  return static_cast<double>(((of[0] + of[4]) + (of[2] + of[6])) +
                             ((of[1] + of[5]) + (of[3] + of[7])));
}

inline double sum_of_chunks(const double* chunks, std::int64_t count) {
  if (count == 1) return 0.0 + chunks[0];
  double lanes[kTotalLanes] = {};
  for (std::int64_t c = 0; c < count; ++c) lanes[c % kTotalLanes] += chunks[c];
  for (int half = kTotalLanes / 2; half >= kSumLanes; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return sum_chunk(kSumLanes, lanes);
}

}  // namespace steelyard::kernels
