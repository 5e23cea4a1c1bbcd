// Straight-through gradients, from the values of the forward or from its mask.
#include <type_traits>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/quant_cuda.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

template <typename V>
struct BackwardCall {
  using T = ComputeType<V>;

  QuantOperation operation;
  std::int64_t elements;
  bool has_x;
  ValueArray<V> x;
  const std::uint8_t* mask;
  ValueArray<V> grad_y;
  ValueArray<V> grad_x;
  SetParameters<T> parameters;
  const std::uint8_t* quantizing;
};

template <typename T>
__device__ T gradient(QuantOperation operation, bool inside, T grad_y, const Affine<T>& p) {
  switch (operation) {
    case QuantOperation::kQuantize:
      return quantize_gradient(inside, grad_y, p.scale);
    case QuantOperation::kDequantize:
      return dequantize_gradient(grad_y, p.scale);
    case QuantOperation::kFakeQuantize:
      break;
  }
  return pass_inside(inside, grad_y);
}

template <typename V>
__global__ void __launch_bounds__(kThreads) backward_kernel(BackwardCall<V> call, Sets sets) {
  using T = ComputeType<V>;
  const Span span = span_of(blockIdx.x, call.elements);
  if (span.count == 0) return;
  T grad[kEight];
  call.grad_y.load(span, grad);
  if (is_on(call.quantizing)) {
    const bool needs_parameters = call.has_x || call.operation != QuantOperation::kFakeQuantize;
    const unsigned mask = call.mask != nullptr ? call.mask[span.first / kEight] : 0xFFU;
    T x[kEight] = {};
    if (call.has_x) call.x.load(span, x);
    Affine<T> p{};
    if (needs_parameters) p = call.parameters.at(sets.of(span.first));
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if (i < span.count) {
        if (needs_parameters && !sets.eight_share) p = call.parameters.at(sets.of(span.first + i));
        const bool inside = call.has_x ? is_inside(x[i], p) : (mask >> i & 1U) != 0;
        grad[i] = gradient(call.operation, inside, grad[i], p);
      }
    }
  }
  call.grad_x.store(span, grad);
}

}  // namespace
}  // namespace cuda

void quant_backward_cuda(const QuantProblem& problem, const QuantArgs& args, void* stream) {
  visit_value_type(problem.value_type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    using T = ComputeType<V>;
    const cuda::BackwardCall<V> call{
        problem.operation,
        problem.map.elements,
        args.x != nullptr,
        cuda::value_array<V>(args.x, problem.strides),
        args.mask,
        cuda::value_array<V>(args.grad_y, problem.strides),
        cuda::value_array<V>(args.grad_x, problem.strides),
        {static_cast<const T*>(args.scale), args.zero_point, problem.range},
        args.quantizing};
    cuda::launch(cuda::backward_kernel<V>, cuda::shape_for_eights(problem.map.elements),
                 static_cast<cudaStream_t>(stream), call, cuda::make_sets(problem.map));
  });
}

}  // namespace steelyard::kernels
