// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/convert.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename From, typename To>
void convert(const CudaQueue&, std::int64_t, const From*, To*) {
  cuda_is_absent();
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
