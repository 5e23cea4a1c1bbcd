// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/optimizer_step.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void sgd_update(const CudaQueue&, std::span<const SgdTensor<T>>, const SgdStep&) {
  cuda_is_absent();
}
template <typename T>
void adamw_update(const CudaQueue&, std::span<const AdamWTensor<T>>, const AdamWStep&) {
  cuda_is_absent();
}
template <typename T>
void move_averages(const CudaQueue&, std::span<const AverageTensor<T>>) {
  cuda_is_absent();
}
template <typename T>
void sum_of_squares(const CudaQueue&, std::span<const ValueTensor<T>>, double*) {
  cuda_is_absent();
}
void clip_factor(const CudaQueue&, std::int64_t, const double*, double, double*, double*) {
  cuda_is_absent();
}
template <typename T>
void scale_all(const CudaQueue&, std::span<const ValueTensor<T>>, const double*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void sgd_update(const CudaQueue&, std::span<const SgdTensor<T>>, const SgdStep&);       \
  template void adamw_update(const CudaQueue&, std::span<const AdamWTensor<T>>, const AdamWStep&); \
  template void move_averages(const CudaQueue&, std::span<const AverageTensor<T>>);                \
  template void sum_of_squares(const CudaQueue&, std::span<const ValueTensor<T>>, double*);        \
  template void scale_all(const CudaQueue&, std::span<const ValueTensor<T>>, const double*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
