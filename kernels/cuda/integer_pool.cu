#include "kernels/integer_pool.h"

#include <algorithm>

#include "kernels/cuda/eight.h"
#include "kernels/requantization.h"

namespace steelyard::kernels {
namespace {

using cuda::divide;
using cuda::kEight;
using cuda::kThreads;

template <typename Code>
__global__ void window_sums_kernel(std::int64_t n, Pool2dShape s, std::int64_t out_h,
                                   std::int64_t out_w, const Code* x,
                                   const std::int32_t* zero_point, std::int32_t* sums) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, s.channels);
  const std::int64_t row = divide(pixel, out_w);
  const std::int64_t image = divide(row, out_h);
  const std::int64_t top = (row - image * out_h) * s.stride_h - s.pad_h;
  const std::int64_t left = (pixel - row * out_w) * s.stride_w - s.pad_w;
  const std::int64_t h_end = top + s.kernel_h < s.in_h ? top + s.kernel_h : s.in_h;
  const std::int64_t w_end = left + s.kernel_w < s.in_w ? left + s.kernel_w : s.in_w;
  const Code* plane = x + image * s.in_h * s.in_w * s.channels + (i - pixel * s.channels);
  const std::int32_t zero = *zero_point;
  std::int32_t sum = 0;
  for (std::int64_t h = top > 0 ? top : 0; h < h_end; ++h) {
    for (std::int64_t w = left > 0 ? left : 0; w < w_end; ++w) {
      sum += plane[(h * s.in_w + w) * s.channels] - zero;
    }
  }
  sums[i] = sum;
}

template <typename Code>
__global__ void __launch_bounds__(kThreads)
    requantize_average_kernel(std::int64_t n, Average average, const std::int32_t* sums,
                              const float* in_scale, const float* scale,
                              const std::int32_t* zero_point, CodeRange range, Code* codes,
                              std::uint8_t* mask) {
  const cuda::Span span = cuda::span_of(blockIdx.x, n);
  if (span.count == 0) return;
  const Affine<float> grid = make_affine(range, *scale, *zero_point);
  const float multiplier = average_multiplier(average, *in_scale, *scale);
  alignas(16) std::int32_t in[kEight];
  alignas(16) Code y[kEight];
  cuda::load_span(sums + span.first, span.count, in);
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    const float code = requantized_code(in[i], multiplier, grid.zero_point);
    y[i] = static_cast<Code>(to_integer_code(code, grid));
    inside |= (code_is_inside(code, grid) ? 1U : 0U) << i;
  }
  cuda::store_span(y, span.count, codes + span.first);
  if (mask != nullptr) mask[span.first / kEight] = static_cast<std::uint8_t>(inside);
}

__global__ void dequantize_average_kernel(std::int64_t n, std::int64_t count,
                                          const std::int32_t* sums, const float* in_scale,
                                          float* out) {
  const std::int64_t i = cuda::element_index();
  if (i < n) out[i] = dequantize_sum(sums[i], global_average_multiplier(*in_scale, count, 1.0F));
}

}  // namespace

template <typename Code>
void integer_window_sums(const CudaQueue& queue, const Pool2dShape& shape, const Code* x,
                         const std::int32_t* zero_point, std::int32_t* sums) {
  cuda::launch_elements(queue, window_sums_kernel<Code>, shape.output_size(), shape, shape.out_h(),
                        shape.out_w(), x, zero_point, sums);
}

template <typename Code>
void requantize_average(const CudaQueue& queue, std::int64_t n, const Average& average,
                        const std::int32_t* sums, const float* in_scale, const float* scale,
                        const std::int32_t* zero_point, CodeRange range, Code* codes,
                        std::uint8_t* mask) {
  cuda::launch(requantize_average_kernel<Code>, cuda::shape_for_eights(n), cuda::stream_of(queue),
               n, average, sums, in_scale, scale, zero_point, range, codes, mask);
}

void dequantize_average(const CudaQueue& queue, std::int64_t n, std::int64_t count,
                        const std::int32_t* sums, const float* in_scale, float* out) {
  cuda::launch_elements(queue, dequantize_average_kernel, n, count, sums, in_scale, out);
}

#define STEELYARD_INSTANTIATE(Code)                                                    \
  template void integer_window_sums(const CudaQueue&, const Pool2dShape&, const Code*, \
                                    const std::int32_t*, std::int32_t*);               \
  template void requantize_average(const CudaQueue&, std::int64_t, const Average&,     \
                                   const std::int32_t*, const float*, const float*,    \
                                   const std::int32_t*, CodeRange, Code*, std::uint8_t*);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
