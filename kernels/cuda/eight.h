// Eight consecutive elements at a time: what a thread of the elementwise kernels reads, writes and
// looks up. Eight is a byte of mask, a 16-byte access of two-byte values, and two of floats.
#pragma once

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/quant_layout.h"
#include "steelyard/kernels/quick_code.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::cuda {

inline constexpr int kEight = 8;

inline LaunchShape shape_for_eights(std::int64_t elements) {
  constexpr std::int64_t kPerBlock = std::int64_t{kEight} * kThreads;
  return {(elements + kPerBlock - 1) / kPerBlock, kThreads};
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

  __device__ Affine<T> at(std::int64_t set) const {
    return make_affine(range, scale[set], zero_point == nullptr ? 0 : zero_point[set]);
  }
};

// The unclamped codes of eight values that share their parameters.
template <typename T>
__device__ void unclamped_codes(const T* x, const Affine<T>& p, T* codes) {
  if (has_quick_codes(p.scale)) {
    const T reciprocal = T(1) / p.scale;
#pragma unroll
    for (int i = 0; i < kEight; ++i) codes[i] = quick_code(x[i], reciprocal, p);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i) codes[i] = unclamped_code(x[i], p);
  }
}

// visit(unclamped codes, parameters of element i as a function) of eight values at `first`, whose
// sets are known.
template <class S, typename T, class Visit>
__device__ void visit_codes_of_eight(const S& sets, const SetParameters<T>& parameters,
                                     std::int64_t first, const T* x, const Visit& visit) {
  T codes[kEight];
  if (sets.eight_share) {
    const Affine<T> p = parameters.at(sets.of(first));
    unclamped_codes(x, p, codes);
    visit(codes, [&](int) { return p; });
    return;
  }
  Affine<T> of[kEight];
  sets.for_eight(first, [&](int i, std::int64_t set) {
    of[i] = parameters.at(set);
    codes[i] = unclamped_code(x[i], of[i]);
  });
  visit(codes, [&](int i) { return of[i]; });
}

}  // namespace steelyard::kernels::cuda
