// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/histogram.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void histogram_accumulate(const CudaQueue&, const HistogramGrid&, std::int64_t, const T*,
                          std::uint64_t*, std::int64_t*) {
  cuda_is_absent();
}

void grow_histograms(const CudaQueue&, const ChannelHistograms&, const float*, const float*) {
  cuda_is_absent();
}

void count_in_histograms(const CudaQueue&, const ChannelHistograms&, const ChannelLayout&,
                         const float*) {
  cuda_is_absent();
}

template void histogram_accumulate(const CudaQueue&, const HistogramGrid&, std::int64_t,
                                   const float*, std::uint64_t*, std::int64_t*);
template void histogram_accumulate(const CudaQueue&, const HistogramGrid&, std::int64_t,
                                   const double*, std::uint64_t*, std::int64_t*);

}  // namespace steelyard::kernels
