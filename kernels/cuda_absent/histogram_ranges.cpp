// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/histogram_ranges.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void least_error_ranges(const CudaQueue&, const ChannelHistograms&, CodeRange, bool, double*,
                        double*) {
  cuda_is_absent();
}
void least_divergence_ranges(const CudaQueue&, const ChannelHistograms&, CodeRange, bool, double*,
                             double*) {
  cuda_is_absent();
}

}  // namespace steelyard::kernels
