// Loops whose iterations are written out.
#pragma once

#include <cstdint>
#include <utility>

namespace steelyard::kernels {

// Calls body(i) for i < kCount, each a constant: GCC 12 unrolls a loop too late to keep arrays that
// i indexes in registers. Always inlined for the same reason.
template <std::int64_t kCount, class Body>
[[gnu::always_inline]] inline void for_each_index(const Body& body) {
  [&]<std::int64_t... i>(std::integer_sequence<std::int64_t, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<std::int64_t, i>()), ...);
  }
  (std::make_integer_sequence<std::int64_t, kCount>());
}

}  // namespace steelyard::kernels
