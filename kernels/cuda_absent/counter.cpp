// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/counter.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void add_counts(const CudaQueue&, std::int64_t, const std::int64_t*, std::int64_t*) {
  cuda_is_absent();
}
void count_one(const CudaQueue&, std::int64_t*) { cuda_is_absent(); }

}  // namespace steelyard::kernels
