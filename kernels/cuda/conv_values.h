// What convolutions read: arrays, or codes that are dequantized on the way.
#pragma once

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cuda/conv_sizes.h"

namespace steelyard::kernels::cuda {

// An array's elements as they are.
template <typename Element>
struct Values {
  const Element* values;

  __device__ Element operator()(std::int64_t i) const { return values[i]; }
};

// What codes with one scale and zero point stand for.
template <typename Code>
struct Activations {
  const Code* codes;
  const float* scale;
  const std::int32_t* zero_point;

  __device__ float operator()(std::int64_t i) const {
    return dequantize_code(static_cast<float>(codes[i]), static_cast<float>(*zero_point), *scale);
  }
};

// Four neighbours of them.
struct alignas(16) FourFloats {
  float values[4];
};
template <typename Code>
struct FourActivations {
  Activations<Code> all;

  __device__ FourFloats operator()(std::int64_t i) const {
    return {{all(4 * i), all(4 * i + 1), all(4 * i + 2), all(4 * i + 3)}};
  }
};

// What codes of weights stand for, `sharers` neighbours having a scale.
struct WeightValues {
  std::int64_t sharers;
  const std::int8_t* codes;
  const float* scales;

  __device__ float operator()(std::int64_t i) const {
    return dequantize_code(static_cast<float>(codes[i]), 0.0F, scales[divide(i, sharers)]);
  }
};

}  // namespace steelyard::kernels::cuda
