// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/oscillation.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void begin_oscillations(const CudaQueue&, std::int64_t, const std::int8_t*,
                        const OscillationState&) {
  cuda_is_absent();
}
void track_oscillations(const CudaQueue&, std::int64_t, const std::int8_t*, float, const float*,
                        const OscillationState&) {
  cuda_is_absent();
}
void count_oscillations(const CudaQueue&, std::int64_t, float, const OscillationState&,
                        std::int64_t*) {
  cuda_is_absent();
}
template <typename T>
void add_damping_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const double*,
                          const T*, const T*, const std::int8_t*, T*) {
  cuda_is_absent();
}
void hold_frozen(const CudaQueue&, const ChannelLayout&, const OscillationState&, const float*,
                 float*, float*) {
  cuda_is_absent();
}

template void add_damping_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const double*,
                                   const float*, const float*, const std::int8_t*, float*);
template void add_damping_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const double*,
                                   const double*, const double*, const std::int8_t*, double*);

}  // namespace steelyard::kernels
