// What a training step quantizes with: dense arrays with a scale per channel, by the kernels that
// QuantPlan (kernels/quant_plan/quant_plan.h) runs too.
//
// All arithmetic is kernels/affine.h. scale and zero_point hold one value per channel of the layout
// (validity is checked where they are set, not here); a null zero_point means 0. T is float or
// double, Code is int8_t or uint8_t. Results do not depend on the number of threads or the device.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// codes = quantize(x); mask (may be null): bit i % 8 of byte i / 8 is inside(x[i]), tail bits 0.
// *nan_count (may be null) grows by the elements that were NaN (their code is the zero point).
template <typename T, typename Code>
struct Quantize {
  ChannelLayout layout;
  CodeRange range;
  const T *x, *scale;
  const std::int32_t* zero_point;
  Code* codes;
  std::uint8_t* mask = nullptr;
  std::int64_t* nan_count = nullptr;
};

// y = (code - z) * s.
template <typename T, typename Code>
struct Dequantize {
  ChannelLayout layout;
  const Code* codes;
  const T* scale;
  const std::int32_t* zero_point;
  T* y;
};

// grad_x = bit ? grad_y : 0, from a mask of Quantize. grad_x may alias grad_y.
template <typename T>
struct ApplyMask {
  std::int64_t n;
  const std::uint8_t* mask;
  const T* grad_y;
  T* grad_x;
};

// ApplyMask of [rows, channels], with sums[c] = the sum over rows of what passes. grad_x may alias
// grad_y. Result is T, or BFloat16 for float: grad_x is then rounded and the sums are not, on the
// CPU only where reads_bf16_gradients() (conv/conv.h). T is BFloat16 on a GPU only.
template <typename T, typename Result = T>
struct ApplyMaskAndSum {
  std::int64_t rows, channels;
  const std::uint8_t* mask;
  const T* grad_y;
  Result* grad_x;
  ComputeType<T>* sums;
};

// grad_x = inside(x) ? 0 : grad_y: what reaches the ends of the range. grad_x may alias grad_y.
template <typename T>
struct ClippedGradient {
  static constexpr std::int64_t kGrain = 16384;
  ChannelLayout layout;
  CodeRange range;
  const T *x, *scale;
  const std::int32_t* zero_point;
  const T* grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t channel) const {
    const std::int32_t zero = zero_point == nullptr ? 0 : zero_point[channel];
    grad_x[i] =
        pass_inside(!is_inside(x[i], make_code_grid(range, scale[channel], zero)), grad_y[i]);
  }
};

template <typename T>
using FakeQuantizeKernelsOf =
    KernelList<Quantize<T, std::int8_t>, Quantize<T, std::uint8_t>, Dequantize<T, std::int8_t>,
               Dequantize<T, std::uint8_t>, ApplyMask<T>, ApplyMaskAndSum<T>, ClippedGradient<T>>;
using FakeQuantizeKernels =
    JoinedKernels<FakeQuantizeKernelsOf<float>, FakeQuantizeKernelsOf<double>,
                  KernelList<ApplyMask<BFloat16>, ApplyMaskAndSum<float, BFloat16>>>;
// Kernels that the CPU has not.
using RoundedGradientKernels = KernelList<ApplyMaskAndSum<BFloat16, BFloat16>>;

}  // namespace steelyard::kernels
