// Straight-through gradients, from the values of the forward or from its mask.
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_kernels.h"

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

template <typename V>
__global__ void __launch_bounds__(kThreads) backward_kernel(BackwardCall<V> call, Sets sets) {
  using T = ComputeType<V>;
  const Span span = span_of(blockIdx.x, call.elements);
  if (span.count == 0) return;
  const bool on = is_on(call.quantizing);
  // With a mask, x is not needed. The gradient of fake-quantize does not contain the scale.
  const bool needs_parameters = call.has_x || call.operation != QuantOperation::kFakeQuantize;
  const unsigned mask = call.mask != nullptr ? call.mask[span.first / kEight] : 0xFFU;
  const auto passes_mask = [&](int i) { return (mask >> i & 1U) != 0; };
  const auto result = [&](bool inside, T grad, const Affine<T>& p) {
    return on ? gradient(call.operation, inside, grad, p) : grad;
  };
  const bool wide = call.x.wide && call.grad_y.wide && call.grad_x.wide;
  if (wide && span.count == kEight && (sets.eight_known() || !needs_parameters)) {
    T grad[kEight];
    call.grad_y.load_eight(span.first, grad);
    if (call.has_x) {
      T x[kEight];
      call.x.load_eight(span.first, x);
      visit_codes_of_eight(sets, call.parameters, span.first, x,
                           [&](const T* codes, const auto& parameters_of) {
#pragma unroll
                             for (int i = 0; i < kEight; ++i) {
                               const Affine<T> p = parameters_of(i);
                               grad[i] = result(code_is_inside(codes[i], p), grad[i], p);
                             }
                           });
    } else if (!needs_parameters || sets.eight_share) {
      Affine<T> p{};
      if (needs_parameters) p = call.parameters.at(sets.of(span.first));
#pragma unroll
      for (int i = 0; i < kEight; ++i) grad[i] = result(passes_mask(i), grad[i], p);
    } else {
      sets.for_eight(span.first, [&](int i, std::int64_t set) {
        grad[i] = result(passes_mask(i), grad[i], call.parameters.at(set));
      });
    }
    call.grad_x.store_eight(span.first, grad);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) {
    const std::int64_t index = span.first + i;
    Affine<T> p{};
    if (needs_parameters) p = call.parameters.at(sets.of(index));
    const bool inside = call.has_x ? is_inside(call.x.get(index), p) : passes_mask(i);
    call.grad_x.set(index, result(inside, call.grad_y.get(index), p));
  }
}

}  // namespace
}  // namespace cuda

static void compute(const CudaQueue& queue, const QuantBackward& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) {
    using T = ComputeType<V>;
    const auto& [problem, args] = k;
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
                 cuda::stream_of(queue), call, cuda::make_sets(problem.map));
  });
}

template struct CudaKernels<KernelList<QuantBackward>>;

}  // namespace steelyard::kernels
