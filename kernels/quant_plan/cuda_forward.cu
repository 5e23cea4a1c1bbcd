// Quantize, dequantize and fake-quantize with given scales: one tensor, or many in one launch.
#include "steelyard/kernels/quant_plan/cuda_forward.h"

#include <vector>

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

template <typename V>
struct BatchTensor {
  std::int64_t size;
  ForwardCall<V> call;
  ChannelSets sets;
};

template <typename V>
__global__ void __launch_bounds__(kThreads) batch_kernel(TensorList<BatchTensor<V>> list) {
  const ListedRange at = listed_range(list);
  const BatchTensor<V>& tensor = list.tensors[at.tensor];
  const Span span = span_of(blockIdx.x - list.first_block[at.tensor], tensor.size);
  if (span.count == 0) return;
  const ForwardCall<V>& call = tensor.call;
  const ChannelSets& sets = tensor.sets;
  const ForwardState<ComputeType<V>> state = forward_state(call, sets);
  if (span.count == kEight && quantizes_eights(call, sets)) {
    quantize_eight(call, sets, state, span.first);
  } else {
    forward_other_span(call, sets, state, span);
  }
}

}  // namespace
}  // namespace cuda

static void compute(const CudaQueue& queue, const QuantForward& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) {
    cuda::launch(cuda::forward_kernel<V>,
                 cuda::shape_for_spans<cuda::forward_kernel<V>>(k.problem.map.elements),
                 cuda::stream_of(queue), cuda::forward_call<V>(k.problem, k.args),
                 cuda::make_sets(k.problem.map));
  });
}

static void compute(const CudaQueue& queue, const QuantBatch& k) {
  if (k.calls.empty()) return;
  visit_value_type(k.calls.front().problem.value_type, [&]<typename V>(V*) {
    std::vector<cuda::BatchTensor<V>> tensors;
    for (const auto& [problem, args] : k.calls) {
      tensors.push_back({problem.map.elements, cuda::forward_call<V>(problem, args),
                         cuda::make_sets(problem.map)});
    }
    cuda::for_each_list(std::span<const cuda::BatchTensor<V>>(tensors), [&](const auto& list) {
      cuda::launch(cuda::batch_kernel<V>, {list.blocks(), cuda::kThreads}, cuda::stream_of(queue),
                   list);
    });
  });
}

template struct CudaKernels<KernelList<QuantForward, QuantBatch>>;

}  // namespace steelyard::kernels
