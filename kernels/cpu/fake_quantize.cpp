#include "kernels/fake_quantize.h"

#include <type_traits>

#include "kernels/cpu/quant_cpu.h"

namespace steelyard::kernels {
namespace {

template <typename T>
QuantProblem problem_of(QuantOperation operation, const ChannelLayout& layout, CodeRange range) {
  QuantProblem problem;
  problem.operation = operation;
  problem.value_type = std::is_same_v<T, double> ? ValueType::kF64 : ValueType::kF32;
  problem.range = range;
  problem.map = make_set_map(layout);
  return problem;
}

// The arguments' pointers are not const because some operations write what others read.
template <typename T>
QuantArgs parameters(const T* scale, const std::int32_t* zero_point) {
  QuantArgs args;
  args.scale = const_cast<T*>(scale);
  args.zero_point = const_cast<std::int32_t*>(zero_point);
  return args;
}

template <typename Code>
constexpr CodeType code_type() {
  return std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8;
}

}  // namespace

template <typename T>
void fake_quantize_forward(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                           const std::int32_t* zero_point, T* y) {
  QuantArgs args = parameters(scale, zero_point);
  args.x = x;
  args.y = y;
  quant_forward_cpu(problem_of<T>(QuantOperation::kFakeQuantize, layout, range), args);
}

template <typename T>
void fake_quantize_backward(const ChannelLayout& layout, CodeRange range, const T* x,
                            const T* scale, const std::int32_t* zero_point, const T* grad_y,
                            T* grad_x) {
  QuantArgs args = parameters(scale, zero_point);
  args.x = x;
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cpu(problem_of<T>(QuantOperation::kFakeQuantize, layout, range), args);
}

template <typename T, typename Code>
std::int64_t quantize(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                      const std::int32_t* zero_point, Code* codes, std::uint8_t* mask) {
  QuantProblem problem = problem_of<T>(QuantOperation::kQuantize, layout, range);
  problem.code_type = code_type<Code>();
  QuantArgs args = parameters(scale, zero_point);
  std::int64_t nan = 0;
  args.x = x;
  args.codes = codes;
  args.mask = mask;
  args.non_finite_count = &nan;
  quant_forward_cpu(problem, args);
  return nan;
}

template <typename T, typename Code>
void dequantize(const ChannelLayout& layout, const Code* codes, const T* scale,
                const std::int32_t* zero_point, T* y) {
  QuantProblem problem = problem_of<T>(QuantOperation::kDequantize, layout, CodeRange{});
  problem.code_type = code_type<Code>();
  QuantArgs args = parameters(scale, zero_point);
  args.codes = const_cast<Code*>(codes);
  args.y = y;
  quant_forward_cpu(problem, args);
}

template <typename T>
void apply_mask(std::int64_t n, const std::uint8_t* mask, const T* grad_y, T* grad_x) {
  const T one = 1;  // no scale matters where the mask is known
  QuantArgs args = parameters<T>(&one, nullptr);
  args.mask = const_cast<std::uint8_t*>(mask);
  args.grad_y = grad_y;
  args.grad_x = grad_x;
  quant_backward_cpu(
      problem_of<T>(QuantOperation::kFakeQuantize, ChannelLayout::per_tensor(n), CodeRange{}),
      args);
}

template void fake_quantize_forward(const ChannelLayout&, CodeRange, const float*, const float*,
                                    const std::int32_t*, float*);
template void fake_quantize_forward(const ChannelLayout&, CodeRange, const double*, const double*,
                                    const std::int32_t*, double*);
template void fake_quantize_backward(const ChannelLayout&, CodeRange, const float*, const float*,
                                     const std::int32_t*, const float*, float*);
template void fake_quantize_backward(const ChannelLayout&, CodeRange, const double*, const double*,
                                     const std::int32_t*, const double*, double*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const float*, const float*,
                               const std::int32_t*, std::int8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const float*, const float*,
                               const std::int32_t*, std::uint8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const double*, const double*,
                               const std::int32_t*, std::int8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const double*, const double*,
                               const std::int32_t*, std::uint8_t*, std::uint8_t*);
template void dequantize(const ChannelLayout&, const std::int8_t*, const float*,
                         const std::int32_t*, float*);
template void dequantize(const ChannelLayout&, const std::uint8_t*, const float*,
                         const std::int32_t*, float*);
template void dequantize(const ChannelLayout&, const std::int8_t*, const double*,
                         const std::int32_t*, double*);
template void dequantize(const ChannelLayout&, const std::uint8_t*, const double*,
                         const std::int32_t*, double*);
template void apply_mask(std::int64_t, const std::uint8_t*, const float*, float*);
template void apply_mask(std::int64_t, const std::uint8_t*, const double*, double*);

}  // namespace steelyard::kernels
