// Memory of packed weights. Private to this family's CPU products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::kernels {

// Both begin with a line of the cache.
template <typename Weight>
struct PackedMemory {
  std::int32_t* first = nullptr;  // what the sums of each column begin with
  Weight* weights = nullptr;
};

// So many of each, filled by fill(memory): those of `kept`, unless it has them, or, where that is
// null, the thread's own, valid until it asks again.
template <typename Weight, typename Fill>
PackedMemory<Weight> packed_memory(KeptWeights* kept, std::int64_t sums, std::int64_t weights,
                                   const Fill& fill) {
  constexpr std::int64_t kLine = kCacheLine / sizeof(std::int32_t);
  const std::int64_t whole = (sums + kLine - 1) / kLine * kLine;
  if (kept == nullptr) {
    const PackedMemory<Weight> memory{line_buffer<std::int32_t, 2>(whole),
                                      line_buffer<Weight, 1>(weights)};
    fill(memory);
    return memory;
  }
  const auto place = [&] {
    auto* const first = reinterpret_cast<std::int32_t*>(kept->memory.get() +
                                                        elements_before_line(kept->memory.get()));
    return PackedMemory<Weight>{first, reinterpret_cast<Weight*>(first + whole)};
  };
  if (kept->memory == nullptr) {
    kept->memory = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<std::size_t>(whole) * sizeof(std::int32_t) +
        static_cast<std::size_t>(weights) * sizeof(Weight) + kCacheLine);
    fill(place());
  }
  return place();
}

}  // namespace steelyard::kernels
