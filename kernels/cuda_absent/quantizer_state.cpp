// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/quantizer_state.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void update_extremes(const CudaQueue&, std::int64_t, const float*, const float*, float*, float*) {
  cuda_is_absent();
}
void update_average_extremes(const CudaQueue&, std::int64_t, double, const float*, const float*,
                             float*, float*, std::int64_t*) {
  cuda_is_absent();
}
template <typename T>
void qparams_of_ranges(const CudaQueue&, std::int64_t, CodeRange, bool, const T*, const T*, float*,
                       std::int32_t*, std::uint8_t*) {
  cuda_is_absent();
}
void observe_values(const CudaQueue&, const RangeRule&, const RangeQuantizer&, std::int64_t,
                    const float*) {
  cuda_is_absent();
}
void begin_latents(const CudaQueue&, std::int64_t, CodeRange, const float*, const std::int32_t*,
                   float*, float*, float*) {
  cuda_is_absent();
}
void follow_latents(const CudaQueue&, std::int64_t, CodeRange, const float*, const float*,
                    const float*, const float*, float*, std::int32_t*, std::int64_t*, float*,
                    std::int32_t*) {
  cuda_is_absent();
}
void chain_latent_gradients(const CudaQueue&, std::int64_t, CodeRange, const float*, const float*,
                            const std::int32_t*, const float*, float*, float*) {
  cuda_is_absent();
}
void rescale_qparams(const CudaQueue&, std::int64_t, CodeRange, CodeRange, bool, float*,
                     std::int32_t*) {
  cuda_is_absent();
}

template void qparams_of_ranges(const CudaQueue&, std::int64_t, CodeRange, bool, const float*,
                                const float*, float*, std::int32_t*, std::uint8_t*);
template void qparams_of_ranges(const CudaQueue&, std::int64_t, CodeRange, bool, const double*,
                                const double*, float*, std::int32_t*, std::uint8_t*);

}  // namespace steelyard::kernels
