// Stands in for kernels/cuda in a build without CUDA.
#include "steelyard/kernels/weight_codes.h"

#include "steelyard/kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

void quantize_weights(const CudaQueue&, const WeightQuantization&, const float*,
                      const WeightQuantizer&, const BiasBehind&, const WeightCodeArrays&) {
  cuda_is_absent();
}

}  // namespace steelyard::kernels
