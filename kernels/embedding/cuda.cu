#include "steelyard/kernels/embedding/embedding.h"

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

using cuda::kFullWarp;

// A warp for each index. The first of equal ones adds up the rows of all of them, in their order;
// finding them costs count^2 / 32 steps of a warp, which is little compared with the rows of a
// batch.
template <typename T>
__global__ void backward_kernel(std::int64_t lanes, EmbeddingBackward<T> k) {
  const std::int64_t i = cuda::element_index() / 32;
  const std::int64_t count = lanes / 32;
  if (i >= count || k.indices[i] < 0 || k.indices[i] >= k.table_rows) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t row = k.indices[i];
  for (std::int64_t j = lane; j - lane < i; j += 32) {
    if (__any_sync(kFullWarp, j < i && k.indices[j] == row)) return;
  }
  T* sum = k.grad_table + row * k.width;
  for (std::int64_t j = i + lane; j - lane < count; j += 32) {
    unsigned equal = __ballot_sync(kFullWarp, j < count && k.indices[j] == row);
    for (; equal != 0; equal &= equal - 1) {
      const T* more = k.grad_y + (j - lane + __ffs(static_cast<int>(equal)) - 1) * k.width;
      for (std::int64_t c = lane; c < k.width; c += 32) sum[c] += more[c];
    }
  }
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const EmbeddingBackward<T>& k) {
  run(queue, Fill<T>{.n = k.table_rows * k.width, .value = 0, .y = k.grad_table});
  cuda::launch_elements(queue, backward_kernel<T>, k.count * 32, k);
}

template struct CudaKernels<EmbeddingKernels>;

}  // namespace steelyard::kernels
