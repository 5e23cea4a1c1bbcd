// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/softmax.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void softmax_cross_entropy(const CudaQueue&, std::int64_t, std::int64_t, const T*,
                           const std::int64_t*, double, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void softmax_divergence(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, double,
                        T*, T*) {
  cuda_is_absent();
}
template <typename T>
void argmax_rows(const CudaQueue&, std::int64_t, std::int64_t, const T*, std::int64_t*) {
  cuda_is_absent();
}
template <typename T>
void add_correct_rows(const CudaQueue&, std::int64_t, std::int64_t, const T*, const std::int64_t*,
                      std::int64_t*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                              \
  template void softmax_cross_entropy(const CudaQueue&, std::int64_t, std::int64_t, const T*, \
                                      const std::int64_t*, double, T*, T*);                   \
  template void softmax_divergence(const CudaQueue&, std::int64_t, std::int64_t, const T*,    \
                                   const T*, double, T*, T*);                                 \
  template void argmax_rows(const CudaQueue&, std::int64_t, std::int64_t, const T*,           \
                            std::int64_t*);                                                   \
  template void add_correct_rows(const CudaQueue&, std::int64_t, std::int64_t, const T*,      \
                                 const std::int64_t*, std::int64_t*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
