// Eight elements to a thread: a byte of mask.
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/requantize/code_spans.h"

namespace steelyard::kernels {
namespace {

using cuda::kEight;
using cuda::kThreads;
using cuda::load_span;
using cuda::Span;
using cuda::span_of;
using cuda::write_codes;

__device__ void compute_span(const Span& span, const FixedRequantize& k) {
  const FixedCodes out = fixed_codes(k.op.activation, k.range, *k.scale, *k.zero_point);
  const std::int64_t row = cuda::divide(span.first, k.op.channels);
  const std::int64_t channel = span.first - row * k.op.channels;
  alignas(16) std::int32_t sums[kEight];
  load_span(k.acc + span.first, span.count, sums);
  write_codes(span, k.codes, k.mask, [&](int i, std::int8_t& y) {
    std::int64_t c = channel + i;
    while (c >= k.op.channels) c -= k.op.channels;
    const std::int32_t sum = with_bias(sums[i], k.bias, c);
    const std::int32_t code =
        fixed_code(sum, {k.multiplier[c], k.shift[c]}, *k.zero_point, k.rounding);
    y = static_cast<std::int8_t>(out.code(code));
    return out.passes(code, dequantize_sum(sum, k.product_scale[c]));
  });
}

__device__ void compute_span(const Span& span, const FixedRequantizeAdd& k) {
  const CodeGrid<float> left = k.a.grid();
  const CodeGrid<float> right = k.b.grid();
  const FixedCodes out = fixed_codes(k.activation, k.range, *k.scale, *k.zero_point);
  const FixedAdd add =
      make_fixed_add(left, right, whole_grid<std::int8_t>(*k.scale, *k.zero_point), k.rounding);
  alignas(16) std::int8_t of_a[kEight];
  alignas(16) std::int8_t of_b[kEight];
  load_span(k.a.codes + span.first, span.count, of_a);
  load_span(k.b.codes + span.first, span.count, of_b);
  write_codes(span, k.codes, k.mask, [&](int i, std::int8_t& y) {
    const std::int32_t code = fixed_add_code(of_a[i], of_b[i], add, k.rounding);
    y = static_cast<std::int8_t>(out.code(code));
    return out.passes(code, real_sum(of_a[i], left, of_b[i], right));
  });
}

__device__ void compute_span(const Span& span, const FixedRequantizeAverage& k) {
  const FixedAverager averager =
      fixed_averager(k.average, *k.in_scale, *k.scale, *k.zero_point, k.rounding);
  const FixedCodes out = fixed_codes(Activation::kNone, k.range, *k.scale, *k.zero_point);
  alignas(16) std::int32_t sums[kEight];
  load_span(k.sums + span.first, span.count, sums);
  write_codes(span, k.codes, k.mask, [&](int i, std::int8_t& y) {
    const std::int32_t code = averager(sums[i]);
    y = static_cast<std::int8_t>(out.code(code));
    return out.passes(code, 0.0F);
  });
}

template <class K>
__global__ void __launch_bounds__(kThreads) fixed_span_kernel(std::int64_t n, K k) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count > 0) compute_span(span, k);
}

}  // namespace

// Computes any kernel that writes codes.
template <class K>
requires requires(const K& k) { k.codes; }
void compute(const CudaQueue& queue, const K& k) {
  const std::int64_t n = cuda::code_count(k);
  cuda::launch(fixed_span_kernel<K>, cuda::shape_for_eights(n), cuda::stream_of(queue), n, k);
}

template struct CudaKernels<FixedRequantizeKernels>;

}  // namespace steelyard::kernels
