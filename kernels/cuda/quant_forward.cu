// Quantize, dequantize and fake-quantize with given scales: one tensor, or many in one launch.
#include "steelyard/kernels/cuda/quant_forward.h"

#include <type_traits>
#include <vector>

#include "steelyard/kernels/cuda/quant_cuda.h"
#include "steelyard/kernels/cuda/tensor_list.h"

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
  if (span.count > 0) forward_span(tensor.call, tensor.sets, span);
}

}  // namespace
}  // namespace cuda

void quant_forward_cuda(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                        void* stream) {
  if (problem.statistics != Statistics::kGiven) {
    quant_forward_with_statistics_cuda(problem, workspace, args, stream);
    return;
  }
  visit_value_type(problem.value_type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    cuda::launch(cuda::forward_kernel<V>, cuda::shape_for_eights(problem.map.elements),
                 static_cast<cudaStream_t>(stream), cuda::forward_call<V>(problem, args),
                 cuda::make_sets(problem.map));
  });
}

void quant_batch_cuda(const std::vector<QuantCall>& calls, void* stream) {
  if (calls.empty()) return;
  visit_value_type(calls.front().problem->value_type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    std::vector<cuda::BatchTensor<V>> tensors;
    for (const QuantCall& call : calls) {
      tensors.push_back({call.problem->map.elements,
                         cuda::forward_call<V>(*call.problem, call.args),
                         cuda::make_sets(call.problem->map)});
    }
    cuda::for_each_list(std::span<const cuda::BatchTensor<V>>(tensors), [&](const auto& list) {
      cuda::launch(cuda::batch_kernel<V>, {list.blocks(), cuda::kThreads},
                   static_cast<cudaStream_t>(stream), list);
    });
  });
}

}  // namespace steelyard::kernels
