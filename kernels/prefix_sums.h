// Sums over the first terms of a row, in an order that CPU and GPU share: terms in chunks of
// kPrefixChunk, each summed by itself, and the chunks' sums from first to last.
#pragma once

#include <algorithm>
#include <cstdint>

namespace steelyard::kernels {

inline constexpr std::int32_t kPrefixChunk = 32;

// sums[i] = term(0) + ... + term(i - 1) for i in [0, n].
template <typename Term>
void prefix_sums(std::int32_t n, const Term& term, double* sums) {
  double before = 0;
  for (std::int32_t first = 0; first < n; first += kPrefixChunk) {
    double within = 0;
    for (std::int32_t i = first; i < std::min(n, first + kPrefixChunk); ++i) {
      sums[i] = before + within;
      within += term(i);
    }
    before += within;
  }
  sums[n] = before;
}

}  // namespace steelyard::kernels
