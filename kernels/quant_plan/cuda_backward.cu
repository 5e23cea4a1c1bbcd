// Straight-through gradients, from the values of the forward or from its mask.
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

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
  const bool on = is_on(call.quantizing);
  const bool fake = call.operation == QuantOperation::kFakeQuantize;
  // With a mask, x is not needed, and neither where all gradients pass. The gradient of
  // fake-quantize does not contain the scale.
  const bool needs_x = call.has_x && on;
  const bool needs_parameters = needs_x || !fake;
  const Multiples<T> only = needs_parameters ? only_set(sets, call.parameters) : Multiples<T>();
  const auto result = [&](bool inside, T grad, T scale) {
    return on ? gradient(call.operation, inside, grad, scale) : grad;
  };
  const bool plain = call.x.wide && call.grad_y.wide && call.grad_x.wide &&
                     (sets.eight_known() || !needs_parameters);
  const auto mask_at = [&](std::int64_t first) {
    return call.mask != nullptr ? call.mask[first / kEight] : 0xFFU;
  };
  for_each_eight(
      call.elements, plain,
      [&](std::int64_t first) {
        T grad[kEight];
        call.grad_y.load_eight(first, grad);
        if (needs_x) {
          T x[kEight];
          call.x.load_eight(first, x);
          const auto each = [&](const auto& gradient_of) {
            each_multiple_of_eight(sets, call.parameters, only, first, x,
                                   [&](int i, T multiple, const Multiples<T>& p) {
                                     grad[i] = gradient_of(p.is_inside(multiple), grad[i], p.scale);
                                   });
          };
          if (fake) {
            each([](bool inside, T value, T) { return pass_inside(inside, value); });
          } else {
            each([](bool inside, T value, T scale) {
              return quantize_gradient(inside, value, scale);
            });
          }
        } else {
          const unsigned mask = mask_at(first);
          const auto passed = [&](int i, T scale) {
            return result((mask >> i & 1U) != 0, grad[i], scale);
          };
          if (!needs_parameters || sets.eight_share) {
            T scale = 1;
            if (needs_parameters) scale = set_of_element(sets, call.parameters, only, first).scale;
#pragma unroll
            for (int i = 0; i < kEight; ++i) grad[i] = passed(i, scale);
          } else {
            sets.for_eight(first, [&](int i, std::int64_t set) {
              grad[i] = passed(i, call.parameters.at(set).scale);
            });
          }
        }
        call.grad_x.store_eight(first, grad);
      },
      [&](const Span& span) {
        const unsigned mask = mask_at(span.first);
#pragma unroll 1
        for (int i = 0; i < span.count; ++i) {
          const std::int64_t index = span.first + i;
          CodeGrid<T> p{};
          if (needs_parameters) p = call.parameters.at(sets.of(index));
          const bool inside = needs_x ? is_inside(call.x.get(index), p) : (mask >> i & 1U) != 0;
          call.grad_x.set(index, result(inside, call.grad_y.get(index), p.scale));
        }
      });
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
    cuda::launch(cuda::backward_kernel<V>,
                 cuda::shape_for_spans<cuda::backward_kernel<V>>(problem.map.elements),
                 cuda::stream_of(queue), call, cuda::make_sets(problem.map));
  });
}

template struct CudaKernels<KernelList<QuantBackward>>;

}  // namespace steelyard::kernels
