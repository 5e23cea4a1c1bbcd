// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/reduce.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void min_max(const CudaQueue&, const ChannelLayout&, const T*, T*, T*, std::int64_t*) {
  cuda_is_absent();
}

template void min_max(const CudaQueue&, const ChannelLayout&, const float*, float*, float*,
                      std::int64_t*);
template void min_max(const CudaQueue&, const ChannelLayout&, const double*, double*, double*,
                      std::int64_t*);

}  // namespace steelyard::kernels
