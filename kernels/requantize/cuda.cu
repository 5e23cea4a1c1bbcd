// Eight elements to a thread: a byte of mask.
#include "steelyard/kernels/requantize/requantize.h"

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/range_update.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/requantize/code_spans.h"

namespace steelyard::kernels {
namespace {

using cuda::kEight;
using cuda::kThreads;
using cuda::load_span;
using cuda::Span;
using cuda::span_of;
using cuda::store_span;
using cuda::write_codes;

template <typename Code>
__device__ void compute_span(const Span& span, const RequantizeAccumulators<Code>& k) {
  const float s = *k.scale;
  const OutputCodes out = output_codes(k.op.activation, s, *k.zero_point, k.range);
  const std::int64_t row = cuda::divide(span.first, k.op.channels);
  const cuda::EightChannels channels(k, span.first - row * k.op.channels, s);
  alignas(16) std::int32_t sums[kEight];
  load_span(k.acc + span.first, span.count, sums);
  cuda::write_sums(span, k, out, channels, sums);
}

template <typename Code>
__device__ void compute_span(const Span& span, const RequantizeAverage<Code>& k) {
  const CodeGrid<float> grid = make_code_grid(k.range, *k.scale, *k.zero_point);
  const float multiplier = average_multiplier(k.average, *k.in_scale, *k.scale);
  alignas(16) std::int32_t sums[kEight];
  load_span(k.sums + span.first, span.count, sums);
  write_codes(span, k.codes, k.mask, [&](int i, Code& y) {
    const float code = requantized_code(sums[i], multiplier, grid.zero_point);
    y = static_cast<Code>(to_integer_code(code, grid));
    return code_is_inside(code, grid);
  });
}

template <typename CodeA, typename CodeB, typename CodeY>
__device__ void compute_span(const Span& span, const RequantizeAdd<CodeA, CodeB, CodeY>& k) {
  const CodeGrid<float> left = k.a.grid();
  const CodeGrid<float> right = k.b.grid();
  const OutputCodes out = output_codes(k.activation, *k.scale, *k.zero_point, k.range);
  const AddRequantizer add =
      make_add_requantizer(left, right, whole_grid<CodeY>(*k.scale, *k.zero_point));
  alignas(16) CodeA of_a[kEight];
  alignas(16) CodeB of_b[kEight];
  load_span(k.a.codes + span.first, span.count, of_a);
  load_span(k.b.codes + span.first, span.count, of_b);
  write_codes(span, k.codes, k.mask, [&](int i, CodeY& y) {
    const float code_a = static_cast<float>(of_a[i]);
    const float code_b = static_cast<float>(of_b[i]);
    const float code = requantized_add_code(code_a, code_b, add);
    y = static_cast<CodeY>(out.code(code));
    return out.passes(code, real_sum(code_a, left, code_b, right));
  });
}

template <typename Code>
__device__ void compute_span(const Span& span, const ActivateCodes<Code>& k) {
  const CodeRange left = activation_code_range(k.activation, k.range, *k.scale, *k.zero_point);
  alignas(16) Code x[kEight];
  load_span(k.x + span.first, span.count, x);
  write_codes(span, k.codes, k.mask, [&](int i, Code& y) {
    const std::int32_t code = x[i];
    y = static_cast<Code>(clamp_keeping_nan(code, left.qmin, left.qmax));
    return code_is_linear(code, k.activation, left);
  });
}

template <typename Code>
__device__ void compute_span(const Span& span, const DropCodes<Code>& k) {
  const unsigned keeps = k.mask[span.first / kEight];
  const Code zero = static_cast<Code>(*k.zero_point);
  alignas(16) Code y[kEight];
  load_span(k.x + span.first, span.count, y);
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i < span.count) y[i] = (keeps >> i & 1U) != 0 ? y[i] : zero;
  }
  store_span(y, span.count, k.codes + span.first);
}

// The values that DequantizeAccumulators would write.
struct RealAccumulator {
  Requantize op;
  cuda::Divisor channels;
  const std::int32_t *acc, *bias;
  const float* product_scale;

  __device__ float operator()(std::int64_t i) const {
    const std::int64_t c = i - divide(i, channels) * channels;
    return linear_part(op.activation)
        .clamp(dequantize_sum(with_bias(acc[i], bias, c), product_scale[c]));
  }
};

template <class K>
__global__ void __launch_bounds__(kThreads) span_kernel(std::int64_t n, K k) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count > 0) compute_span(span, k);
}

}  // namespace

static void compute(const CudaQueue& queue, const ObserveAccumulators& k) {
  cuda::observe_range<RealExtremes>(
      queue, k.rule, k.to, k.op.rows * k.op.channels,
      RealAccumulator{k.op, k.op.channels, k.acc, k.bias, k.product_scale});
}

// Computes any kernel that writes codes.
template <class K>
requires requires(const K& k) { k.codes; }
void compute(const CudaQueue& queue, const K& k) {
  const std::int64_t n = cuda::code_count(k);
  cuda::launch(span_kernel<K>, cuda::shape_for_eights(n), cuda::stream_of(queue), n, k);
}

template struct CudaKernels<RequantizeKernels>;

}  // namespace steelyard::kernels
