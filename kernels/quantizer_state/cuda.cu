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

}  // namespace

static void compute(const CudaQueue& queue, const ObserveValues& kernel) {
  cuda::observe_range<FiniteExtremes>(queue, kernel.rule, kernel.to, kernel.n, ValueOf{kernel.x});
}

template struct CudaKernels<QuantizerStateKernels>;

}  // namespace steelyard::kernels
