#include "kernels/dropout.h"

#include "kernels/cuda/grid.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::launch_elements;

__global__ void mask_kernel(std::int64_t bytes, double p, MaskSource source,
                            const std::int64_t* step, std::uint8_t* mask) {
  const std::int64_t i = element_index();
  if (i < bytes) mask[i] = kept_bits(at_step(source, step), i, p);
}

template <typename T>
__global__ void dropout_kernel(std::int64_t n, const std::uint8_t* mask, T factor, const T* x,
                               T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = dropped(mask, i, factor, x[i]);
}

}  // namespace

void dropout_mask(const CudaQueue& queue, std::int64_t bytes, double p, const MaskSource& source,
                  const std::int64_t* step, std::uint8_t* mask) {
  launch_elements(queue, mask_kernel, bytes, p, source, step, mask);
}

template <typename T>
void apply_dropout(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, T factor,
                   const T* x, T* y) {
  launch_elements(queue, dropout_kernel<T>, n, mask, factor, x, y);
}

template void apply_dropout(const CudaQueue&, std::int64_t, const std::uint8_t*, float,
                            const float*, float*);
template void apply_dropout(const CudaQueue&, std::int64_t, const std::uint8_t*, double,
                            const double*, double*);

}  // namespace steelyard::kernels
