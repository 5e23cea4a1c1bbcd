#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"

namespace steelyard::kernels {

template <typename T>
void compute(const FoldWeightBackward<T>& k) {
  for (std::int64_t c = 0; c < k.channels; ++c) {
    const double factor = static_cast<double>(k.gamma[c]) / k.std_dev[c];
    double sum = 0;
    for (std::int64_t i = c * k.inner; i < (c + 1) * k.inner; ++i) {
      const double grad = static_cast<double>(k.grad_folded[i]);
      k.grad_weight[i] = static_cast<T>(grad * factor);
      sum += grad * static_cast<double>(k.weight[i]);
    }
    k.grad_gamma[c] = static_cast<T>(sum / k.std_dev[c]);
  }
}

template struct CpuKernels<NormFoldKernels>;

}  // namespace steelyard::kernels
