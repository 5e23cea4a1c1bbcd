// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/layer_norm.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void layer_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, const T*,
                        double, T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void layer_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, const T*,
                         const T*, const T*, T*, T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                            \
  template void layer_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*,  \
                                   const T*, const T*, double, T*, T*, T*);                 \
  template void layer_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*, \
                                    const T*, const T*, const T*, const T*, T*, T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
