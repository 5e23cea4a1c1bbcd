// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/embedding.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void embedding_forward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                       const std::int64_t*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void embedding_backward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                        const std::int64_t*, const T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                               \
  template void embedding_forward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,  \
                                  const std::int64_t*, const T*, T*);                          \
  template void embedding_backward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, \
                                   const std::int64_t*, const T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
