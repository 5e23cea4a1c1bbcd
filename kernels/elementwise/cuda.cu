#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

// n words of 8 bytes, where they lie on such; the last may be shorter.
__global__ void swap_kernel(std::int64_t n, std::int64_t bytes, unsigned char* a,
                            unsigned char* b) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t end = 8 * i + 8 < bytes ? 8 * i + 8 : bytes;
  if (end == 8 * i + 8 && cuda::is_aligned(a, 8) && cuda::is_aligned(b, 8)) {
    auto* first = reinterpret_cast<unsigned long long*>(a) + i;
    auto* second = reinterpret_cast<unsigned long long*>(b) + i;
    const unsigned long long word = *first;
    *first = *second;
    *second = word;
    return;
  }
  for (std::int64_t at = 8 * i; at < end; ++at) {
    const unsigned char byte = a[at];
    a[at] = b[at];
    b[at] = byte;
  }
}

}  // namespace

static void compute(const CudaQueue& queue, const SwapBytes& kernel) {
  cuda::launch_elements(queue, swap_kernel, (kernel.bytes + 7) / 8, kernel.bytes,
                        static_cast<unsigned char*>(kernel.a),
                        static_cast<unsigned char*>(kernel.b));
}

template struct CudaKernels<ElementwiseKernels>;

}  // namespace steelyard::kernels
