// Eight consecutive elements at a time: what a thread of the elementwise kernels reads, writes and
// looks up. Eight is a byte of mask, a 16-byte access of two-byte values, and two of floats.
#pragma once

#include <algorithm>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/multiples.h"
#include "steelyard/kernels/quant_plan/quant_layout.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::cuda {

inline constexpr int kEight = 8;

inline LaunchShape shape_for_eights(std::int64_t elements) {
  constexpr std::int64_t kPerBlock = std::int64_t{kEight} * kThreads;
  return {(elements + kPerBlock - 1) / kPerBlock, kThreads};
}

// The launch shape of a kernel that goes on by for_each_span() or for_each_eight(): no more blocks
// than run at once, on the first device that is asked.
template <auto kKernel>
LaunchShape shape_for_spans(std::int64_t elements) {
  static const std::int64_t most = resident_blocks(kKernel, kThreads);
  LaunchShape shape = shape_for_eights(elements);
  shape.blocks = std::min(shape.blocks, most);
  return shape;
}

// The thread's elements: [first, first + count), count 0 past the end.
struct Span {
  std::int64_t first;
  int count;
};

__device__ inline Span span_of(std::int64_t block, std::int64_t elements) {
  const std::int64_t first = (block * kThreads + threadIdx.x) * kEight;
  const std::int64_t left = elements - first;
  return {first, left >= kEight ? kEight : left > 0 ? static_cast<int>(left) : 0};
}

// f(span) for each of the thread's spans. All threads of a block get as many, at the end some
// without elements.
template <class F>
__device__ void for_each_span(std::int64_t elements, const F& f) {
  for (std::int64_t block = blockIdx.x; block * kThreads * kEight < elements; block += gridDim.x) {
    f(span_of(block, elements));
  }
}

// Where eights are `plain`, whole(first) for each of the thread's that is complete; rest(span) for
// other spans. Not all threads of a block get as many.
template <class Whole, class Rest>
__device__ void for_each_eight(std::int64_t elements, bool plain, const Whole& whole,
                               const Rest& rest) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * kEight;
  std::int64_t first = element_index() * kEight;
  if (plain) {
    for (; first + kEight <= elements; first += step) whole(first);
  }
  for (; first < elements; first += step) {
    rest(Span{first, static_cast<int>(elements - first < kEight ? elements - first : kEight)});
  }
}

// Logical index -> parameter set where sets are channels: [outer, channels, inner].
struct ChannelSets {
  std::int64_t sets;
  std::int64_t channels;  // 0 in Sets that are no channels
  std::int64_t inner;
  bool eight_share;  // every aligned eight lie in one set

  __device__ std::int64_t of(std::int64_t index) const {
    if (sets == 1) return 0;
    const std::int64_t plane = divide(index, inner);
    return plane - divide(plane, channels) * channels;
  }
  // Whether the sets of eight neighbours are found without a division each: by of() once, or by
  // for_eight().
  __device__ bool eight_known() const { return eight_share || channels != 0; }
  // f(i, set) for eight neighbours of channels, i known to the compiler, without a division each.
  template <class F>
  __device__ void for_eight(std::int64_t first, const F& f) const {
    const std::int64_t plane = divide(first, inner);
    std::int64_t left = (plane + 1) * inner - first;
    std::int64_t channel = plane - divide(plane, channels) * channels;
#pragma unroll
    for (int i = 0; i < kEight; ++i, --left) {
      if (left == 0) {
        left = inner;
        channel = channel + 1 == channels ? 0 : channel + 1;
      }
      f(i, channel);
    }
  }
};

// For any sets; by two divisions where they are channels.
struct Sets : ChannelSets {
  SetMap map;  // asked where channels = 0

  __device__ std::int64_t of(std::int64_t index) const {
    return channels == 0 && sets != 1 ? map.set_of(index) : ChannelSets::of(index);
  }
};

inline Sets make_sets(const SetMap& map) {
  const ChannelLayout layout = map.as_channels();
  const bool simple = layout.channels > 0;
  const int last = map.rank - 1;
  const bool share =
      simple ? layout.inner % kEight == 0
             : map.rank > 0 && map.size[last] % kEight == 0 && map.block[last] % kEight == 0;
  return {
      {map.sets, simple ? layout.channels : 0, simple ? layout.inner : 1, map.sets == 1 || share},
      map};
}

// Copies up to eight neighbours between registers and memory: at once where there are eight and
// they lie on 16 bytes (8 for codes). The array of registers has eight, aligned to 16 bytes; it
// stays in registers where all that use it know their index, so loops over it are unrolled to
// eight.
template <typename T>
__device__ void copy_span(const T* memory, const T* from, int count, T* to) {
  if (count == kEight && is_aligned(memory, 16) && sizeof(T) > 1) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  } else if (count == kEight && is_aligned(memory, 8)) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)); ++i) {
      reinterpret_cast<uint2*>(to)[i] = reinterpret_cast<const uint2*>(from)[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if (i < count) to[i] = from[i];
    }
  }
}
template <typename T>
__device__ void load_span(const T* from, int count, T* local) {
  copy_span(from, from, count, local);
}
template <typename T>
__device__ void store_span(const T* local, int count, T* to) {
  copy_span<T>(to, local, count, to);
}

// An array of values with the way to reach it: one at a time, or, where it is `wide` (dense and
// aligned), eight by accesses of 16 bytes.
template <typename V>
struct ValueArray {
  V* values;
  bool wide;
  StrideMap strides;

  using T = ComputeType<V>;
  static constexpr int kWords = kEight * static_cast<int>(sizeof(V)) / 16;

  __device__ T get(std::int64_t index) const { return widen(values[strides.offset_of(index)]); }
  __device__ void set(std::int64_t index, T value) const {
    values[strides.offset_of(index)] = narrow<V>(value);
  }
  __device__ void load_eight(std::int64_t first, T* out) const {
    alignas(16) V buffer[kEight];
    const uint4* from = reinterpret_cast<const uint4*>(values + first);
    uint4* to = reinterpret_cast<uint4*>(buffer);
#pragma unroll
    for (int i = 0; i < kWords; ++i) to[i] = from[i];
#pragma unroll
    for (int i = 0; i < kEight; ++i) out[i] = widen(buffer[i]);
  }
  __device__ void store_eight(std::int64_t first, const T* in) const {
    alignas(16) V buffer[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i) buffer[i] = narrow<V>(in[i]);
    const uint4* from = reinterpret_cast<const uint4*>(buffer);
    uint4* to = reinterpret_cast<uint4*>(values + first);
#pragma unroll
    for (int i = 0; i < kWords; ++i) to[i] = from[i];
  }
};

// A null array is wide: nothing is read from it.
template <typename V>
ValueArray<V> value_array(const void* values, const StrideMap& strides) {
  return {static_cast<V*>(const_cast<void*>(values)), strides.dense && is_aligned(values, 16),
          strides};
}

// Eight codes as the low bits of a word, element 0 lowest.
__device__ inline std::uint64_t load_codes(const std::uint8_t* codes, int bits, const Span& span) {
  const std::uint8_t* from = codes + span.first * bits / 8;
  if (span.count == kEight && is_aligned(from, static_cast<std::size_t>(bits))) {
    if (bits == 4) return *reinterpret_cast<const std::uint32_t*>(from);
    if (bits == 2) return *reinterpret_cast<const std::uint16_t*>(from);
    if (bits == 8) {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      return both.x | static_cast<std::uint64_t>(both.y) << 32;
    }
  }
  const int bytes = (span.count * bits + 7) / 8;
  std::uint64_t word = 0;
  for (int i = 0; i < bytes; ++i) word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return word;
}

__device__ inline void store_codes(std::uint64_t word, int bits, const Span& span,
                                   std::uint8_t* codes) {
  std::uint8_t* to = codes + span.first * bits / 8;
  if (span.count == kEight && is_aligned(to, static_cast<std::size_t>(bits))) {
    const auto low = static_cast<std::uint32_t>(word);
    if (bits == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = low;
      return;
    }
    if (bits == 2) {
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(low);
      return;
    }
    if (bits == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(low, static_cast<std::uint32_t>(word >> 32));
      return;
    }
  }
  const int bytes = (span.count * bits + 7) / 8;
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(word >> (8 * i));
}

// Scale and zero point of each set.
template <typename T>
struct SetParameters {
  const T* scale;
  const std::int32_t* zero_point;  // null means 0
  CodeRange range;

  __device__ CodeGrid<T> at(std::int64_t set) const {
    return make_code_grid(range, scale[set], zero_point == nullptr ? 0 : zero_point[set]);
  }
};

// The only set's parameters, which a thread reads once; of no use where there are more.
template <class S, typename T>
__device__ Multiples<T> only_set(const S& sets, const SetParameters<T>& parameters) {
  return sets.sets == 1 ? Multiples<T>(parameters.at(0)) : Multiples<T>();
}

// The parameters of an element's set.
template <class S, typename T>
__device__ Multiples<T> set_of_element(const S& sets, const SetParameters<T>& parameters,
                                       const Multiples<T>& only, std::int64_t index) {
  return sets.sets == 1 ? only : Multiples<T>(parameters.at(sets.of(index)));
}

// each(i, multiple, parameters) of eight values at `first`, whose sets are known; the multiple of
// NaN is 0. Returns how many are NaN.
template <class S, typename T, class Each>
__device__ unsigned each_multiple_of_eight(const S& sets, const SetParameters<T>& parameters,
                                           const Multiples<T>& only, std::int64_t first,
                                           const T (&x)[kEight], const Each& each) {
  unsigned nan = 0;
  if (sets.eight_share) {
    const Multiples<T> p = set_of_element(sets, parameters, only, first);
    T multiples[kEight];
    nan = multiples_of(x, p, multiples);
#pragma unroll
    for (int i = 0; i < kEight; ++i) each(i, multiples[i], p);
  } else {
    sets.for_eight(first, [&](int i, std::int64_t set) {
      const Multiples<T> p(parameters.at(set));
      each(i, p.of(x[i]), p);
      nan += x[i] != x[i] ? 1U : 0U;
    });
  }
  return nan;
}

}  // namespace steelyard::kernels::cuda
