// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/norm_fold.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename R>
void running_std(const CudaQueue&, std::int64_t, const R*, double, double*) {
  cuda_is_absent();
}
template <typename T, typename R>
void fold_bias(const CudaQueue&, std::int64_t, const T*, const T*, const T*, const R*,
               const double*, double*, T*) {
  cuda_is_absent();
}
template <typename T>
void fold_bias_backward(const CudaQueue&, std::int64_t, const T*, const T*, const double*,
                        const double*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void keep_from_zero(const CudaQueue&, std::int64_t, T, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void fold_factor(const CudaQueue&, std::int64_t, const T*, const double*, double*) {
  cuda_is_absent();
}
template <typename T>
void corrected_norm_terms(const CudaQueue&, std::int64_t, const T*, const T*, const T*, double,
                          const double*, const T*, T*, T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void corrected_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,
                             const T*, const T*, const T*, T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void recovered_norm_terms(const CudaQueue&, std::int64_t, const double*, const T*, const T*, double,
                          const T*, T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void fold_weight(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, const double*,
                 T*) {
  cuda_is_absent();
}
template <typename T>
void fold_weight_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,
                          const double*, const T*, T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void running_std(const CudaQueue&, std::int64_t, const T*, double, double*);            \
  template void fold_bias_backward(const CudaQueue&, std::int64_t, const T*, const T*,             \
                                   const double*, const double*, T*, T*);                          \
  template void keep_from_zero(const CudaQueue&, std::int64_t, T, const T*, T*);                   \
  template void fold_factor(const CudaQueue&, std::int64_t, const T*, const double*, double*);     \
  template void corrected_norm_terms(const CudaQueue&, std::int64_t, const T*, const T*, const T*, \
                                     double, const double*, const T*, T*, T*, T*, T*);             \
  template void corrected_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*,    \
                                        const T*, const T*, const T*, const T*, T*, T*, T*);       \
  template void recovered_norm_terms(const CudaQueue&, std::int64_t, const double*, const T*,      \
                                     const T*, double, const T*, T*, T*, T*);                      \
  template void fold_weight(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,      \
                            const double*, T*);                                                    \
  template void fold_weight_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*,       \
                                     const T*, const double*, const T*, T*, T*);                   \
  template void fold_bias(const CudaQueue&, std::int64_t, const T*, const T*, const T*,            \
                          const float*, const double*, double*, T*);                               \
  template void fold_bias(const CudaQueue&, std::int64_t, const T*, const T*, const T*,            \
                          const double*, const double*, double*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
