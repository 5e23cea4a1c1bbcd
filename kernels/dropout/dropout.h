// Random omission of elements, remembered as one bit each. T is float or double.
#pragma once

#include "steelyard/kernels/philox.h"
#include "steelyard/kernels/run.h"

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
struct DropoutMask {
  static constexpr std::int64_t kGrain = 512;
  std::int64_t n;  // bytes
  double p;
  MaskSource source;
  const std::int64_t* step;
  std::uint8_t* mask;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t byte) const {
    const std::uint64_t steps = step == nullptr ? 0 : static_cast<std::uint64_t>(*step);
    unsigned bits = 0;
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint64_t index = source.first_block + 2 * static_cast<std::uint64_t>(byte) + half;
      const PhiloxBlock random = philox_block(source.seed, source.stream + steps, index);
      for (unsigned i = 0; i < 4; ++i) {
        if (unit_interval(random.words[i]) >= p) bits |= 1U << (4 * half + i);
      }
    }
    mask[byte] = static_cast<std::uint8_t>(bits);
  }
};

// A mask of elements in which those of one unit share the unit's bit: unit i / block * channels +
// i % channels of element i. Bits behind the last element are zero.
struct SpreadMask {
  static constexpr std::int64_t kGrain = 512;
  std::int64_t n;  // bytes of mask
  std::int64_t elements, block, channels;
  const std::uint8_t* units;
  std::uint8_t* mask;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t byte) const {
    unsigned bits = 0;
    for (std::int64_t i = 8 * byte; i < 8 * byte + 8 && i < elements; ++i) {
      const std::int64_t unit = i / block * channels + i % channels;
      bits |= static_cast<unsigned>(units[unit / 8] >> (unit % 8) & 1) << (i % 8);
    }
    mask[byte] = static_cast<std::uint8_t>(bits);
  }
};

// y = x * factor where the bit is set, else 0.
template <typename T>
struct ApplyDropout {
  std::int64_t n;
  const std::uint8_t* mask;
  T factor;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = (mask[i / 8] >> (i % 8) & 1) != 0 ? x[i] * factor : T(0);
  }
};

using DropoutKernels = JoinedKernels<KernelList<DropoutMask, SpreadMask>, ForFloats<ApplyDropout>>;

}  // namespace steelyard::kernels
