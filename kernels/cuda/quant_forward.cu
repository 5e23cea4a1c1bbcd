// Quantize, dequantize and fake-quantize with given scales: one tensor, or many in one launch.
#include "steelyard/kernels/cuda/quant_forward.h"

#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/cuda/quant_cuda.h"
#include "steelyard/kernels/cuda/quant_statistics.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// What a launch may carry: the largest kernel parameters are 32,764 bytes.
constexpr int kMostTensors = 64;

template <typename V>
struct BatchTensor {
  ForwardCall<V> call;
  std::int64_t channels;
  std::int64_t inner;
};

template <typename V>
struct Batch {
  int tensors;
  std::int64_t first_block[kMostTensors + 1];
  BatchTensor<V> tensor[kMostTensors];
};

// The tensor that a block belongs to.
template <typename V>
__device__ int tensor_of_block(const Batch<V>& batch, std::int64_t block) {
  int low = 0;
  int high = batch.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (batch.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename V>
__global__ void __launch_bounds__(kThreads) batch_kernel(Batch<V> batch) {
  const int index = tensor_of_block(batch, blockIdx.x);
  const BatchTensor<V>& tensor = batch.tensor[index];
  const ChannelSets sets{tensor.channels, tensor.channels, tensor.inner,
                         tensor.channels == 1 || tensor.inner % kEight == 0};
  const Span span = span_of(blockIdx.x - batch.first_block[index], tensor.call.elements);
  if (span.count > 0) forward_span(tensor.call, sets, span);
}

template <typename V>
void launch_batch(const QuantCall* calls, int count, cudaStream_t stream) {
  Batch<V> batch{};
  batch.tensors = count;
  for (int i = 0; i < count; ++i) {
    const QuantProblem& problem = *calls[i].problem;
    const ChannelLayout layout = problem.map.as_channels();
    batch.tensor[i] = {forward_call<V>(problem, calls[i].args),
                       std::max<std::int64_t>(1, layout.channels),
                       std::max<std::int64_t>(1, layout.inner)};
    batch.first_block[i + 1] = batch.first_block[i] + shape_for_eights(problem.map.elements).blocks;
  }
  launch(batch_kernel<V>, {batch.first_block[count], kThreads}, stream, batch);
}

}  // namespace
}  // namespace cuda

void quant_forward_cuda(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                        void* stream) {
  if (problem.statistics != Statistics::kGiven) {
    cuda::forward_with_statistics(problem, workspace, args, static_cast<cudaStream_t>(stream));
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
    for (std::size_t done = 0; done < calls.size(); done += cuda::kMostTensors) {
      const auto count = std::min<std::size_t>(cuda::kMostTensors, calls.size() - done);
      cuda::launch_batch<V>(calls.data() + done, static_cast<int>(count),
                            static_cast<cudaStream_t>(stream));
    }
  });
}

}  // namespace steelyard::kernels
