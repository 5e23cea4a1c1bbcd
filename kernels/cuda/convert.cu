#include "kernels/convert.h"

#include <type_traits>

#include "kernels/cuda/grid.h"

namespace steelyard::kernels {
namespace {

__device__ inline std::int32_t widen(std::int32_t value) { return value; }
using kernels::widen;

template <typename From, typename To>
__global__ void convert_kernel(std::int64_t n, const From* x, To* y) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  if constexpr (std::is_floating_point_v<To> || std::is_integral_v<To>) {
    y[i] = static_cast<To>(widen(x[i]));
  } else {
    y[i] = narrow_once<To>(static_cast<double>(widen(x[i])));
  }
}

}  // namespace

template <typename From, typename To>
void convert(const CudaQueue& queue, std::int64_t n, const From* x, To* y) {
  cuda::launch_elements(queue, convert_kernel<From, To>, n, x, y);
}

template void convert(const CudaQueue&, std::int64_t, const float*, double*);
template void convert(const CudaQueue&, std::int64_t, const float*, std::int32_t*);
template void convert(const CudaQueue&, std::int64_t, const float*, Half*);
template void convert(const CudaQueue&, std::int64_t, const float*, BFloat16*);
template void convert(const CudaQueue&, std::int64_t, const double*, float*);
template void convert(const CudaQueue&, std::int64_t, const double*, std::int32_t*);
template void convert(const CudaQueue&, std::int64_t, const double*, Half*);
template void convert(const CudaQueue&, std::int64_t, const double*, BFloat16*);
template void convert(const CudaQueue&, std::int64_t, const std::int32_t*, float*);
template void convert(const CudaQueue&, std::int64_t, const std::int32_t*, double*);
template void convert(const CudaQueue&, std::int64_t, const Half*, float*);
template void convert(const CudaQueue&, std::int64_t, const Half*, double*);
template void convert(const CudaQueue&, std::int64_t, const Half*, BFloat16*);
template void convert(const CudaQueue&, std::int64_t, const BFloat16*, float*);
template void convert(const CudaQueue&, std::int64_t, const BFloat16*, double*);
template void convert(const CudaQueue&, std::int64_t, const BFloat16*, Half*);

}  // namespace steelyard::kernels
