#include "kernels/embedding.h"

#include <limits>

#include "kernels/cuda/block_sum.h"
#include "kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kFullWarp;
using cuda::launch_elements;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
__global__ void forward_kernel(std::int64_t n, std::int64_t rows, std::int64_t width,
                               const std::int64_t* indices, const T* table, T* y) {
  const std::int64_t at = element_index();
  if (at >= n) return;
  const std::int64_t i = cuda::divide(at, width);
  const std::int64_t row = indices[i];
  y[at] = row >= 0 && row < rows ? table[row * width + at - i * width] : static_cast<T>(kNan);
}

// A warp for each index. The first of equal ones adds up the rows of all of them, in their order;
// looking for them costs count^2 / 32 steps of a warp, little next to the rows of a batch.
template <typename T>
__global__ void backward_kernel(std::int64_t lanes, std::int64_t rows, std::int64_t width,
                                const std::int64_t* indices, const T* grad_y, T* grad_table) {
  const std::int64_t i = element_index() / 32;
  const std::int64_t count = lanes / 32;
  if (i >= count || indices[i] < 0 || indices[i] >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t row = indices[i];
  for (std::int64_t j = lane; j - lane < i; j += 32) {
    if (__any_sync(kFullWarp, j < i && indices[j] == row)) return;
  }
  T* sum = grad_table + row * width;
  for (std::int64_t j = i + lane; j - lane < count; j += 32) {
    unsigned equal = __ballot_sync(kFullWarp, j < count && indices[j] == row);
    for (; equal != 0; equal &= equal - 1) {
      const T* more = grad_y + (j - lane + __ffs(static_cast<int>(equal)) - 1) * width;
      for (std::int64_t c = lane; c < width; c += 32) sum[c] += more[c];
    }
  }
}

}  // namespace

template <typename T>
void embedding_forward(const CudaQueue& queue, std::int64_t count, std::int64_t rows,
                       std::int64_t width, const std::int64_t* indices, const T* table, T* y) {
  launch_elements(queue, forward_kernel<T>, count * width, rows, width, indices, table, y);
}

template <typename T>
void embedding_backward(const CudaQueue& queue, std::int64_t count, std::int64_t rows,
                        std::int64_t width, const std::int64_t* indices, const T* grad_y,
                        T* grad_table) {
  run(queue, Fill<T>{.n = rows * width, .value = 0, .y = grad_table});
  launch_elements(queue, backward_kernel<T>, count * 32, rows, width, indices, grad_y, grad_table);
}

#define STEELYARD_INSTANTIATE(T)                                                               \
  template void embedding_forward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,  \
                                  const std::int64_t*, const T*, T*);                          \
  template void embedding_backward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, \
                                   const std::int64_t*, const T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
