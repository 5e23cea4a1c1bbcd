// The typed functions run the kernels of QuantPlan.
#include "steelyard/kernels/fake_quantize.h"

#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/quant_cuda.h"
#include "steelyard/kernels/typed_quant.h"

namespace steelyard::kernels {
namespace {

template <typename T>
__global__ void clipped_gradient_kernel(std::int64_t n, std::int64_t channels, std::int64_t inner,
                                        CodeRange range, const T* x, const T* scale,
                                        const std::int32_t* zero_point, const T* grad_y,
                                        T* grad_x) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t c = channels == 1 ? 0 : cuda::divide(i, inner) % channels;
  const std::int32_t zero = zero_point == nullptr ? 0 : zero_point[c];
  grad_x[i] = pass_inside(!is_inside(x[i], make_affine(range, scale[c], zero)), grad_y[i]);
}

// Writes what passes and adds it up.
template <typename T>
struct MaskedTerm {
  std::int64_t channels;
  const std::uint8_t* mask;
  const T* grad_y;
  T* grad_x;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t channel,
                             double (&sums)[1]) const {
    const std::int64_t i = row * channels + channel;
    const T passed = pass_inside((mask[i / 8] >> (i % 8) & 1) != 0, grad_y[i]);
    grad_x[i] = passed;
    sums[0] += static_cast<double>(passed);
  }
};

}  // namespace

template <typename T>
void fake_quantize_forward(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                           const T* x, const T* scale, const std::int32_t* zero_point, T* y) {
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.y = y;
  quant_forward_cuda(typed_problem<T>(QuantOperation::kFakeQuantize, layout, range), nullptr, args,
                     queue.stream);
}

template <typename T>
void fake_quantize_backward(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                            const T* x, const T* scale, const std::int32_t* zero_point,
                            const T* grad_y, T* grad_x) {
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cuda(typed_problem<T>(QuantOperation::kFakeQuantize, layout, range), args,
                      queue.stream);
}

template <typename T, typename Code>
void quantize(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range, const T* x,
              const T* scale, const std::int32_t* zero_point, Code* codes, std::uint8_t* mask,
              std::int64_t* nan_count) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kQuantize, layout, range);
  problem.code_type = code_type_of<Code>();
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.codes = codes;
  args.mask = mask;
  args.non_finite_count = nan_count;
  quant_forward_cuda(problem, nullptr, args, queue.stream);
}

template <typename T, typename Code>
void dequantize(const CudaQueue& queue, const ChannelLayout& layout, const Code* codes,
                const T* scale, const std::int32_t* zero_point, T* y) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kDequantize, layout, CodeRange{});
  problem.code_type = code_type_of<Code>();
  QuantArgs args = typed_args(scale, zero_point);
  args.codes = const_cast<Code*>(codes);
  args.y = y;
  quant_forward_cuda(problem, nullptr, args, queue.stream);
}

template <typename T>
void apply_mask(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, const T* grad_y,
                T* grad_x) {
  QuantArgs args;
  args.mask = const_cast<std::uint8_t*>(mask);
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cuda(
      typed_problem<T>(QuantOperation::kFakeQuantize, ChannelLayout::per_tensor(n), CodeRange{}),
      args, queue.stream);
}

template <typename T>
void apply_mask_and_sum(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                        const std::uint8_t* mask, const T* grad_y, T* grad_x, T* sums) {
  cuda::sum_columns<1>(queue, cuda::make_row_chunks(1, rows, channels),
                       MaskedTerm<T>{channels, mask, grad_y, grad_x}, cuda::StoreSum<T>{sums});
}

template <typename T>
void clipped_gradient(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                      const T* x, const T* scale, const std::int32_t* zero_point, const T* grad_y,
                      T* grad_x) {
  cuda::launch_elements(queue, clipped_gradient_kernel<T>, layout.size(), layout.channels,
                        layout.inner, range, x, scale, zero_point, grad_y, grad_x);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void fake_quantize_forward(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, \
                                      const T*, const std::int32_t*, T*);                          \
  template void fake_quantize_backward(const CudaQueue&, const ChannelLayout&, CodeRange,          \
                                       const T*, const T*, const std::int32_t*, const T*, T*);     \
  template void clipped_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const T*,      \
                                 const T*, const std::int32_t*, const T*, T*);                     \
  template void apply_mask(const CudaQueue&, std::int64_t, const std::uint8_t*, const T*, T*);     \
  template void apply_mask_and_sum(const CudaQueue&, std::int64_t, std::int64_t,                   \
                                   const std::uint8_t*, const T*, T*, T*);                         \
  template void quantize(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,    \
                         const std::int32_t*, std::int8_t*, std::uint8_t*, std::int64_t*);         \
  template void quantize(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,    \
                         const std::int32_t*, std::uint8_t*, std::uint8_t*, std::int64_t*);        \
  template void dequantize(const CudaQueue&, const ChannelLayout&, const std::int8_t*, const T*,   \
                           const std::int32_t*, T*);                                               \
  template void dequantize(const CudaQueue&, const ChannelLayout&, const std::uint8_t*, const T*,  \
                           const std::int32_t*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
