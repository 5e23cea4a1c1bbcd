// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/norm.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void batch_moments(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void inverse_std(const CudaQueue&, std::int64_t, const T*, double, T*) {
  cuda_is_absent();
}
template <typename T, typename R>
void move_running_statistics(const CudaQueue&, std::int64_t, double, double, const T*, const T*, R*,
                             R*) {
  cuda_is_absent();
}
template <typename T>
void batch_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, const T*,
                        const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void batch_norm_backward_training(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,
                                  const T*, const T*, const T*, T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void batch_norm_backward_frozen(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,
                                const T*, const T*, const T*, T*, T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void batch_moments(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*, T*);     \
  template void inverse_std(const CudaQueue&, std::int64_t, const T*, double, T*);                 \
  template void move_running_statistics(const CudaQueue&, std::int64_t, double, double, const T*,  \
                                        const T*, float*, float*);                                 \
  template void move_running_statistics(const CudaQueue&, std::int64_t, double, double, const T*,  \
                                        const T*, double*, double*);                               \
  template void batch_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*,         \
                                   const T*, const T*, const T*, const T*, T*);                    \
  template void batch_norm_backward_training(const CudaQueue&, std::int64_t, std::int64_t,         \
                                             const T*, const T*, const T*, const T*, const T*, T*, \
                                             T*, T*);                                              \
  template void batch_norm_backward_frozen(const CudaQueue&, std::int64_t, std::int64_t, const T*, \
                                           const T*, const T*, const T*, const T*, T*, T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
