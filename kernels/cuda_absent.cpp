// Stands in for the GPU's kernels in a build without CUDA: everything throws.
#include "kernels/all_kernels.h"
#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <class K>
void run(const CudaQueue&, const K&) {
  cuda_is_absent();
}
template struct CudaKernels<AllKernels>;

}  // namespace steelyard::kernels
