// Random omission of elements, remembered as one bit each. T is float or double.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"
#include "kernels/philox.h"

namespace steelyard::kernels {

// Where the random numbers of a mask come from: two blocks for each byte.
struct MaskSource {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t first_block = 0;
};

// Bit i % 8 of byte i / 8: element i stays, which has probability 1 - p. The same bits on every
// device. Where `step` is not null, *step is added to the stream when the mask is drawn: a recorded
// CUDA graph that runs again draws other numbers.
void dropout_mask(std::int64_t bytes, double p, const MaskSource& source, const std::int64_t* step,
                  std::uint8_t* mask);

// y = x * factor where the bit is set, else 0.
template <typename T>
void apply_dropout(std::int64_t n, const std::uint8_t* mask, T factor, const T* x, T* y);

// The same on a GPU.
void dropout_mask(const CudaQueue& queue, std::int64_t bytes, double p, const MaskSource& source,
                  const std::int64_t* step, std::uint8_t* mask);
template <typename T>
void apply_dropout(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, T factor,
                   const T* x, T* y);

STEELYARD_HOST_DEVICE inline MaskSource at_step(MaskSource source, const std::int64_t* step) {
  if (step != nullptr) source.stream += static_cast<std::uint64_t>(*step);
  return source;
}

// One byte of a mask.
STEELYARD_HOST_DEVICE inline std::uint8_t kept_bits(const MaskSource& source, std::int64_t byte,
                                                    double p) {
  unsigned bits = 0;
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint64_t index = source.first_block + 2 * static_cast<std::uint64_t>(byte) + half;
    const PhiloxBlock random = philox_block(source.seed, source.stream, index);
    for (unsigned i = 0; i < 4; ++i) {
      if (unit_interval(random.words[i]) >= p) bits |= 1U << (4 * half + i);
    }
  }
  return static_cast<std::uint8_t>(bits);
}

template <typename T>
STEELYARD_HOST_DEVICE inline T dropped(const std::uint8_t* mask, std::int64_t i, T factor, T x) {
  return (mask[i / 8] >> (i % 8) & 1) != 0 ? x * factor : T(0);
}

}  // namespace steelyard::kernels
