// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/dropout.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void dropout_mask(const CudaQueue&, std::int64_t, double, const MaskSource&, const std::int64_t*,
                  std::uint8_t*) {
  cuda_is_absent();
}
template <typename T>
void apply_dropout(const CudaQueue&, std::int64_t, const std::uint8_t*, T, const T*, T*) {
  cuda_is_absent();
}
template void apply_dropout(const CudaQueue&, std::int64_t, const std::uint8_t*, float,
                            const float*, float*);
template void apply_dropout(const CudaQueue&, std::int64_t, const std::uint8_t*, double,
                            const double*, double*);

}  // namespace steelyard::kernels
