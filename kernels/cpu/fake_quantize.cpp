#include "steelyard/kernels/fake_quantize.h"

#include <algorithm>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/quant_cpu.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/typed_quant.h"

namespace steelyard::kernels {
template <typename T>
void fake_quantize_forward(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                           const std::int32_t* zero_point, T* y) {
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.y = y;
  quant_forward_cpu(typed_problem<T>(QuantOperation::kFakeQuantize, layout, range), args);
}

template <typename T>
void fake_quantize_backward(const ChannelLayout& layout, CodeRange range, const T* x,
                            const T* scale, const std::int32_t* zero_point, const T* grad_y,
                            T* grad_x) {
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cpu(typed_problem<T>(QuantOperation::kFakeQuantize, layout, range), args);
}

template <typename T, typename Code>
void quantize(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
              const std::int32_t* zero_point, Code* codes, std::uint8_t* mask,
              std::int64_t* nan_count) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kQuantize, layout, range);
  problem.code_type = code_type_of<Code>();
  QuantArgs args = typed_args(scale, zero_point);
  args.x = x;
  args.codes = codes;
  args.mask = mask;
  args.non_finite_count = nan_count;
  quant_forward_cpu(problem, args);
}

template <typename T, typename Code>
void dequantize(const ChannelLayout& layout, const Code* codes, const T* scale,
                const std::int32_t* zero_point, T* y) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kDequantize, layout, CodeRange{});
  problem.code_type = code_type_of<Code>();
  QuantArgs args = typed_args(scale, zero_point);
  args.codes = const_cast<Code*>(codes);
  args.y = y;
  quant_forward_cpu(problem, args);
}

template <typename T>
void apply_mask(std::int64_t n, const std::uint8_t* mask, const T* grad_y, T* grad_x) {
  const T one = 1;  // no scale matters where the mask is known
  QuantArgs args = typed_args<T>(&one, nullptr);
  args.mask = const_cast<std::uint8_t*>(mask);
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cpu(
      typed_problem<T>(QuantOperation::kFakeQuantize, ChannelLayout::per_tensor(n), CodeRange{}),
      args);
}

template <typename T>
void clipped_gradient(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                      const std::int32_t* zero_point, const T* grad_y, T* grad_x) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(layout.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t run = begin / layout.inner;
      const std::int64_t channel = run % layout.channels;
      const std::int64_t stop = std::min(end, (run + 1) * layout.inner);
      const std::int32_t zero = zero_point == nullptr ? 0 : zero_point[channel];
      const Affine<T> grid = make_affine(range, scale[channel], zero);
      STEELYARD_VECTORIZE
      for (std::int64_t i = begin; i < stop; ++i) {
        grad_x[i] = pass_inside(!is_inside(x[i], grid), grad_y[i]);
      }
      begin = stop;
    }
  });
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void fake_quantize_forward(const ChannelLayout&, CodeRange, const T*, const T*,         \
                                      const std::int32_t*, T*);                                    \
  template void fake_quantize_backward(const ChannelLayout&, CodeRange, const T*, const T*,        \
                                       const std::int32_t*, const T*, T*);                         \
  template void clipped_gradient(const ChannelLayout&, CodeRange, const T*, const T*,              \
                                 const std::int32_t*, const T*, T*);                               \
  template void apply_mask(std::int64_t, const std::uint8_t*, const T*, T*);                       \
  template void quantize(const ChannelLayout&, CodeRange, const T*, const T*, const std::int32_t*, \
                         std::int8_t*, std::uint8_t*, std::int64_t*);                              \
  template void quantize(const ChannelLayout&, CodeRange, const T*, const T*, const std::int32_t*, \
                         std::uint8_t*, std::uint8_t*, std::int64_t*);                             \
  template void dequantize(const ChannelLayout&, const std::int8_t*, const T*,                     \
                           const std::int32_t*, T*);                                               \
  template void dequantize(const ChannelLayout&, const std::uint8_t*, const T*,                    \
                           const std::int32_t*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
