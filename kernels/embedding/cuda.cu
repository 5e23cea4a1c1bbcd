#include "steelyard/kernels/embedding/embedding.h"

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

using cuda::kFullWarp;

// A warp for each index and outer position. The first of equal indices adds up the rows of all of
// them, in their order; finding them costs count^2 / 32 steps of a warp, which is little compared
// with the rows of a batch.
template <typename T>
__global__ void backward_kernel(std::int64_t lanes, GatherBackward<T> k) {
  const std::int64_t warp = cuda::element_index() / 32;
  if (warp >= lanes / 32) return;
  const std::int64_t outer = warp / k.count, i = warp - outer * k.count;
  const std::int64_t row = k.indices[i];
  if (row < 0 || row >= k.extent) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t j = lane; j - lane < i; j += 32) {
    if (__any_sync(kFullWarp, j < i && k.indices[j] == row)) return;
  }
  T* sum = k.grad_x + (outer * k.extent + row) * k.width;
  const T* from = k.grad_y + outer * k.count * k.width;
  for (std::int64_t j = i + lane; j - lane < k.count; j += 32) {
    unsigned equal = __ballot_sync(kFullWarp, j < k.count && k.indices[j] == row);
    for (; equal != 0; equal &= equal - 1) {
      const T* more = from + (j - lane + __ffs(static_cast<int>(equal)) - 1) * k.width;
      for (std::int64_t c = lane; c < k.width; c += 32) sum[c] += more[c];
    }
  }
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const GatherBackward<T>& k) {
  run(queue, Fill<T>{.n = k.outer * k.extent * k.width, .value = 0, .y = k.grad_x});
  cuda::launch_elements(queue, backward_kernel<T>, k.outer * k.count * 32, k);
}

template struct CudaKernels<EmbeddingKernels>;

}  // namespace steelyard::kernels
