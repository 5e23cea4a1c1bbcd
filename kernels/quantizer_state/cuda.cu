#include "steelyard/kernels/cuda/range_update.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::kernels {
namespace {

// A value of the array.
struct ValueOf {
  const float* x;
  __device__ float operator()(std::int64_t i) const { return x[i]; }
};

__global__ void follow_kernel(std::int64_t n, FollowLatents kernel) {
  const std::int64_t c = cuda::element_index();
  if (c < n) cuda::count(kernel.follow(c), kernel.non_finite);
}

}  // namespace

static void compute(const CudaQueue& queue, const ObserveValues& kernel) {
  cuda::observe_range<cuda::FiniteExtremes>(queue, kernel.rule, kernel.to, kernel.n,
                                            ValueOf{kernel.x});
}

static void compute(const CudaQueue& queue, const FollowLatents& kernel) {
  cuda::launch_elements(queue, follow_kernel, kernel.n, kernel);
}

template struct CudaKernels<QuantizerStateKernels>;

}  // namespace steelyard::kernels
