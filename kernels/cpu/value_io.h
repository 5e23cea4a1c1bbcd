// Reads and writes values of any format and stride as the type that arithmetic uses.
#pragma once

#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/quant_plan/quant_layout.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// Calls run(offset, stride, index, count) on the parts of the logical indices [first, first +
// count) that lie evenly in memory; `index` counts from 0.
template <typename Run>
void for_each_strided_run(const StrideMap& map, std::int64_t first, std::int64_t count, Run&& run) {
  const int last = map.rank - 1;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (first + done) % map.size[last];
    const std::int64_t length = std::min(count - done, map.size[last] - at);
    run(map.offset_of(first + done), map.stride[last], done, length);
    done += length;
  }
}

// The values at logical indices [first, first + count): in place where they are dense and need no
// widening, else in `buffer`, which holds `count`.
template <typename V>
const ComputeType<V>* load_values(const StrideMap& map, const V* values, std::int64_t first,
                                  std::int64_t count, ComputeType<V>* buffer) {
  if (map.dense) {
    if constexpr (std::is_same_v<V, ComputeType<V>>) {
      return values + first;
    } else {
      STEELYARD_VECTORIZE
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = widen(values[first + i]);
      return buffer;
    }
  }
  for_each_strided_run(
      map, first, count,
      [&](std::int64_t offset, std::int64_t stride, std::int64_t index, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) {
          buffer[index + i] = widen(values[offset + i * stride]);
        }
      });
  return buffer;
}

template <typename V>
void store_values(const StrideMap& map, const ComputeType<V>* from, std::int64_t first,
                  std::int64_t count, V* values) {
  if (map.dense) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < count; ++i) values[first + i] = narrow<V>(from[i]);
    return;
  }
  for_each_strided_run(
      map, first, count,
      [&](std::int64_t offset, std::int64_t stride, std::int64_t index, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) {
          values[offset + i * stride] = narrow<V>(from[index + i]);
        }
      });
}

// Lets produce(first, count, out) write the values at logical indices [begin, end) of a block, at
// most kBlockElements of them; see write_block.
template <typename V, typename Produce>
void write_values(const StrideMap& map, V* values, std::int64_t begin, std::int64_t end,
                  bool stream, std::int64_t chunk_bytes, Produce&& produce) {
  using T = ComputeType<V>;
  if constexpr (std::is_same_v<V, T>) {
    if (map.dense) {
      write_block(
          values + begin, end - begin, stream, chunk_bytes,
          [&](std::int64_t at, std::int64_t count, T* out) { produce(begin + at, count, out); });
      return;
    }
  }
  alignas(kCacheLine) T buffer[kBlockElements];
  if (map.dense) {
    write_block(values + begin, end - begin, stream, chunk_bytes,
                [&](std::int64_t at, std::int64_t count, V* out) {
                  produce(begin + at, count, buffer);
                  STEELYARD_VECTORIZE
                  for (std::int64_t i = 0; i < count; ++i) out[i] = narrow<V>(buffer[i]);
                });
    return;
  }
  produce(begin, end - begin, buffer);
  store_values(map, buffer, begin, end - begin, values);
}

}  // namespace steelyard::kernels
