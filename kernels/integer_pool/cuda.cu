#include "steelyard/kernels/integer_pool/integer_pool.h"

#include <algorithm>

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/requantize/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::divide;
using cuda::kEight;
using cuda::kThreads;

template <typename Code>
__global__ void window_sums_kernel(std::int64_t n, std::int64_t out_h, std::int64_t out_w,
                                   IntegerWindowSums<Code> k) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const Pool2dShape& s = k.shape;
  const std::int64_t pixel = divide(i, s.channels);
  const std::int64_t row = divide(pixel, out_w);
  const std::int64_t image = divide(row, out_h);
  const std::int64_t top = (row - image * out_h) * s.stride_h - s.pad_h;
  const std::int64_t left = (pixel - row * out_w) * s.stride_w - s.pad_w;
  const std::int64_t h_end = top + s.kernel_h < s.in_h ? top + s.kernel_h : s.in_h;
  const std::int64_t w_end = left + s.kernel_w < s.in_w ? left + s.kernel_w : s.in_w;
  const Code* plane = k.x + image * s.in_h * s.in_w * s.channels + (i - pixel * s.channels);
  const std::int32_t zero = *k.zero_point;
  std::int32_t sum = 0;
  for (std::int64_t h = top > 0 ? top : 0; h < h_end; ++h) {
    for (std::int64_t w = left > 0 ? left : 0; w < w_end; ++w) {
      sum += plane[(h * s.in_w + w) * s.channels] - zero;
    }
  }
  k.sums[i] = sum;
}

template <typename Code>
__global__ void __launch_bounds__(kThreads) requantize_average_kernel(RequantizeAverage<Code> k) {
  const cuda::Span span = cuda::span_of(blockIdx.x, k.n);
  if (span.count == 0) return;
  const Affine<float> grid = make_affine(k.range, *k.scale, *k.zero_point);
  const float multiplier = average_multiplier(k.average, *k.in_scale, *k.scale);
  alignas(16) std::int32_t in[kEight];
  alignas(16) Code y[kEight];
  cuda::load_span(k.sums + span.first, span.count, in);
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    const float code = requantized_code(in[i], multiplier, grid.zero_point);
    y[i] = static_cast<Code>(to_integer_code(code, grid));
    inside |= (code_is_inside(code, grid) ? 1U : 0U) << i;
  }
  cuda::store_span(y, span.count, k.codes + span.first);
  if (k.mask != nullptr) k.mask[span.first / kEight] = static_cast<std::uint8_t>(inside);
}

}  // namespace

template <typename Code>
void compute(const CudaQueue& queue, const IntegerWindowSums<Code>& k) {
  cuda::launch_elements(queue, window_sums_kernel<Code>, k.shape.output_size(), k.shape.out_h(),
                        k.shape.out_w(), k);
}

template <typename Code>
void compute(const CudaQueue& queue, const RequantizeAverage<Code>& k) {
  cuda::launch(requantize_average_kernel<Code>, cuda::shape_for_eights(k.n), cuda::stream_of(queue),
               k);
}

template struct CudaKernels<IntegerPoolKernels>;

}  // namespace steelyard::kernels
