// What convolutions on a GPU read: arrays, codes that are dequantized on the way, and weights in
// the order of reading.
#pragma once

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cuda/neighbours.h"
#include "steelyard/kernels/cuda/windows.h"

namespace steelyard::kernels::cuda {

// An array's elements as they are. loaded() of an operand is what a thread that reads many elements
// reads them by.
template <typename Element>
struct Values {
  const Element* values;

  __device__ Element operator()(std::int64_t i) const { return values[i]; }
  __device__ Values loaded() const { return *this; }
};

// What codes stand for, with their scale and zero point in registers: one value, or as an element
// four neighbours, which begin at a multiple of four bytes.
template <typename Code>
struct LoadedActivations {
  const Code* codes;
  float scale, zero_point;

  __device__ float operator()(std::int64_t i) const { return value_of(codes[i]); }
  __device__ Neighbours<float, 4> four(std::int64_t i) const {
    const Neighbours<Code, 4> read = load<4>(codes + 4 * i);
    Neighbours<float, 4> values;
#pragma unroll
    for (int n = 0; n < 4; ++n) values.of[n] = value_of(read.of[n]);
    return values;
  }

 private:
  __device__ float value_of(Code code) const {
    return dequantize_code(static_cast<float>(code), zero_point, scale);
  }
};
template <typename Code>
struct LoadedFours {
  LoadedActivations<Code> all;

  __device__ Neighbours<float, 4> operator()(std::int64_t i) const { return all.four(i); }
};

// What codes stand for, with their scale and zero point in memory.
template <typename Code>
struct Activations {
  const Code* codes;
  const float* scale;
  const std::int32_t* zero_point;

  __device__ LoadedActivations<Code> loaded() const {
    return {codes, *scale, static_cast<float>(*zero_point)};
  }
  __device__ float operator()(std::int64_t i) const { return loaded()(i); }
};
template <typename Code>
struct FourActivations {
  Activations<Code> all;

  __device__ LoadedFours<Code> loaded() const { return {all.loaded()}; }
  __device__ Neighbours<float, 4> operator()(std::int64_t i) const { return loaded()(i); }
};

// What codes of weights stand for, `sharers` neighbours having a scale.
struct WeightValues {
  Divisor sharers;
  const std::int8_t* codes;
  const float* scales;

  __device__ float operator()(std::int64_t i) const {
    return dequantize_code(static_cast<float>(codes[i]), 0.0F, scales[divide(i, sharers)]);
  }
};

// Weights [O, C/groups, KH, KW] are packed in the order of the patches' columns, [O, KH, KW,
// C/groups], or of depthwise kernels, [KH, KW, O]: both swap the last two of [matrices, channels,
// taps].
struct WeightOrder {
  explicit WeightOrder(const ConvSizes& c)
      : channels(c.s.is_depthwise() ? c.out_channels : c.channels), taps(c.taps) {}

  bool is_same() const { return taps == 1 || channels == 1; }
  // The place of packed weight i before, and the other way round.
  __device__ std::int64_t plain(std::int64_t i) const { return swapped(i, taps, channels); }
  __device__ std::int64_t packed(std::int64_t i) const { return swapped(i, channels, taps); }

  Divisor channels, taps;

 private:
  // From [.., rows, columns] to [.., columns, rows].
  __device__ static std::int64_t swapped(std::int64_t i, const Divisor& rows,
                                         const Divisor& columns) {
    const std::int64_t line = divide(i, columns);
    const std::int64_t matrix = divide(line, rows);
    return (matrix * columns + (i - line * columns)) * rows + (line - matrix * rows);
  }
};

template <typename T, typename Weights>
__global__ void pack_kernel(std::int64_t n, WeightOrder order, Weights w, T* packed) {
  const std::int64_t i = element_index();
  if (i < n) packed[i] = w(order.plain(i));
}

// 0 where the packed mask, which may be null, has no one.
template <typename T>
__global__ void unpack_kernel(std::int64_t n, WeightOrder order, const T* packed,
                              const std::uint8_t* mask, T* w) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const bool passes = mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0;
  w[i] = pass_inside(passes, packed[order.packed(i)]);
}

// Packed weights in memory of their own, unless they are those of the caller.
template <typename T>
class PackedWeights {
 public:
  PackedWeights(const CudaQueue& queue, const ConvSizes& c, bool needs_memory = false)
      : queue_(queue),
        order_(c),
        size_(c.s.weight_size()),
        has_memory_(needs_memory || !order_.is_same()),
        memory_(queue, has_memory_ ? size_ : 0) {}

  template <typename Weights>
  const T* pack(const Weights& w) const {
    launch_elements(queue_, pack_kernel<T, Weights>, size_, order_, w, memory_.data());
    return memory_.data();
  }
  const T* pack(const T* w) const { return has_memory_ ? pack(Values<T>{w}) : w; }
  // Where a gradient is packed for unpack().
  T* target(T* grad_w) const { return has_memory_ ? memory_.data() : grad_w; }
  void unpack(const std::uint8_t* mask, T* grad_w) const {
    if (!has_memory_ && mask == nullptr) return;
    launch_elements(queue_, unpack_kernel<T>, size_, order_, static_cast<const T*>(target(grad_w)),
                    mask, grad_w);
  }

 private:
  const CudaQueue& queue_;
  WeightOrder order_;
  std::int64_t size_;
  bool has_memory_;
  Scratch<T> memory_;
};

}  // namespace steelyard::kernels::cuda
