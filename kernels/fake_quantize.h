// Quantization kernels for dense arrays with a scale per channel, as typed functions: what
// QuantPlan (kernels/quant_plan.h) runs for them, without a plan.
//
// All arithmetic is kernels/affine.h. scale and zero_point hold one value per channel of the layout
// (validity is checked where they are set, not here); a null zero_point means 0. T is float or
// double, Code is int8_t or uint8_t. Results do not depend on the number of threads or the device.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/cuda_queue.h"
#include "steelyard/kernels/layout.h"

namespace steelyard::kernels {

// y = (clamp(rint(x / s) + z) - z) * s; NaN stays NaN. y may alias x.
template <typename T>
void fake_quantize_forward(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                           const std::int32_t* zero_point, T* y);

// grad_x = inside(x) ? grad_y : 0. grad_x may alias grad_y.
template <typename T>
void fake_quantize_backward(const ChannelLayout& layout, CodeRange range, const T* x,
                            const T* scale, const std::int32_t* zero_point, const T* grad_y,
                            T* grad_x);

// codes = quantize(x); mask (may be null): bit i % 8 of byte i / 8 is inside(x[i]), tail bits 0.
// *nan_count (may be null) grows by the elements that were NaN (their code is z).
template <typename T, typename Code>
void quantize(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
              const std::int32_t* zero_point, Code* codes, std::uint8_t* mask,
              std::int64_t* nan_count);

// y = (code - z) * s.
template <typename T, typename Code>
void dequantize(const ChannelLayout& layout, const Code* codes, const T* scale,
                const std::int32_t* zero_point, T* y);

// grad_x = bit ? grad_y : 0, from a mask of quantize(). grad_x may alias grad_y.
template <typename T>
void apply_mask(std::int64_t n, const std::uint8_t* mask, const T* grad_y, T* grad_x);

// grad_x = inside(x) ? 0 : grad_y: what reaches the ends of the range. grad_x may alias grad_y.
template <typename T>
void clipped_gradient(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                      const std::int32_t* zero_point, const T* grad_y, T* grad_x);

// The same on a GPU.
template <typename T>
void fake_quantize_forward(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                           const T* x, const T* scale, const std::int32_t* zero_point, T* y);
template <typename T>
void fake_quantize_backward(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                            const T* x, const T* scale, const std::int32_t* zero_point,
                            const T* grad_y, T* grad_x);
template <typename T, typename Code>
void quantize(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range, const T* x,
              const T* scale, const std::int32_t* zero_point, Code* codes, std::uint8_t* mask,
              std::int64_t* nan_count);
template <typename T, typename Code>
void dequantize(const CudaQueue& queue, const ChannelLayout& layout, const Code* codes,
                const T* scale, const std::int32_t* zero_point, T* y);
template <typename T>
void apply_mask(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, const T* grad_y,
                T* grad_x);
// apply_mask() of [rows, channels] and column_sums() of its result at once, on a GPU alone.
template <typename T>
void apply_mask_and_sum(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                        const std::uint8_t* mask, const T* grad_y, T* grad_x, T* sums);
template <typename T>
void clipped_gradient(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                      const T* x, const T* scale, const std::int32_t* zero_point, const T* grad_y,
                      T* grad_x);

}  // namespace steelyard::kernels
