// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/percentile.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void percentile_ranges(const CudaQueue&, const ChannelHistograms&, double, bool,
                       const std::int64_t*, const double*, const double*, double*, double*) {
  cuda_is_absent();
}
void percentiles_of_first_step(const CudaQueue&, const ChannelLayout&, double, bool, const float*,
                               const float*, const float*, std::int64_t*, double*, double*) {
  cuda_is_absent();
}

}  // namespace steelyard::kernels
