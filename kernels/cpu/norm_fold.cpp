#include "kernels/norm_fold.h"

#include "kernels/norm_fold_rules.h"

namespace steelyard::kernels {
namespace {

template <typename Rule, typename... Arguments>
void each_channel(std::int64_t channels, Arguments... arguments) {
  for (std::int64_t c = 0; c < channels; ++c) Rule::at(c, arguments...);
}

}  // namespace

template <typename T>
void fold_weight(std::int64_t channels, std::int64_t inner, const T* weight, const T* gamma,
                 const double* std_dev, T* folded) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const double factor = norm_fold::factor_of(gamma[c], std_dev[c]);
    for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
      folded[i] = static_cast<T>(static_cast<double>(weight[i]) * factor);
    }
  }
}

template <typename T>
void fold_weight_backward(std::int64_t channels, std::int64_t inner, const T* weight,
                          const T* gamma, const double* std_dev, const T* grad_folded,
                          T* grad_weight, T* grad_gamma) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const double factor = norm_fold::factor_of(gamma[c], std_dev[c]);
    double sum = 0;
    for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
      const double grad = static_cast<double>(grad_folded[i]);
      grad_weight[i] = static_cast<T>(grad * factor);
      sum += grad * static_cast<double>(weight[i]);
    }
    grad_gamma[c] = static_cast<T>(sum / std_dev[c]);
  }
}

template <typename R>
void running_std(std::int64_t channels, const R* variance, double eps, double* std_dev) {
  each_channel<norm_fold::RunningStd>(channels, variance, eps, std_dev);
}

template <typename T, typename R>
void fold_bias(std::int64_t channels, const T* bias, const T* gamma, const T* beta, const R* mean,
               const double* std_dev, double* centred, T* folded) {
  each_channel<norm_fold::FoldBias>(channels, bias, gamma, beta, mean, std_dev, centred, folded);
}

template <typename T>
void fold_bias_backward(std::int64_t channels, const T* grad_folded, const T* gamma,
                        const double* std_dev, const double* centred, T* grad_gamma, T* grad_bias) {
  each_channel<norm_fold::FoldBiasBackward>(channels, grad_folded, gamma, std_dev, centred,
                                            grad_gamma, grad_bias);
}

template <typename T>
void keep_from_zero(std::int64_t channels, T smallest, const T* x, T* y) {
  each_channel<norm_fold::KeepFromZero>(channels, smallest, x, y);
}

template <typename T>
void fold_factor(std::int64_t channels, const T* gamma, const double* std_dev, double* factor) {
  each_channel<norm_fold::FoldFactor>(channels, gamma, std_dev, factor);
}

template <typename T>
void corrected_norm_terms(std::int64_t channels, const T* gamma, const T* mean, const T* variance,
                          double eps, const double* std_dev, const T* offset, T* inv_std, T* ratio,
                          T* hidden_mean, T* shifted_mean) {
  each_channel<norm_fold::CorrectedTerms>(channels, gamma, mean, variance, eps, std_dev, offset,
                                          inv_std, ratio, hidden_mean, shifted_mean);
}

template <typename T>
void corrected_norm_backward(std::int64_t channels, std::int64_t rows, const T* gamma,
                             const T* mean, const T* inv_std, const T* grad_ratio,
                             const T* grad_beta, T* grad_gamma, T* slope, T* shift) {
  each_channel<norm_fold::CorrectedBackward>(channels, rows, gamma, mean, inv_std, grad_ratio,
                                             grad_beta, grad_gamma, slope, shift);
}

template <typename T>
void recovered_norm_terms(std::int64_t channels, const double* factor, const T* product_mean,
                          const T* product_variance, double eps, const T* offset, T* mean,
                          T* variance, T* inv_std) {
  each_channel<norm_fold::RecoveredTerms>(channels, factor, product_mean, product_variance, eps,
                                          offset, mean, variance, inv_std);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void running_std(std::int64_t, const T*, double, double*);                              \
  template void fold_bias_backward(std::int64_t, const T*, const T*, const double*, const double*, \
                                   T*, T*);                                                        \
  template void keep_from_zero(std::int64_t, T, const T*, T*);                                     \
  template void fold_factor(std::int64_t, const T*, const double*, double*);                       \
  template void corrected_norm_terms(std::int64_t, const T*, const T*, const T*, double,           \
                                     const double*, const T*, T*, T*, T*, T*);                     \
  template void corrected_norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*,  \
                                        const T*, const T*, T*, T*, T*);                           \
  template void recovered_norm_terms(std::int64_t, const double*, const T*, const T*, double,      \
                                     const T*, T*, T*, T*);                                        \
  template void fold_weight(std::int64_t, std::int64_t, const T*, const T*, const double*, T*);    \
  template void fold_weight_backward(std::int64_t, std::int64_t, const T*, const T*,               \
                                     const double*, const T*, T*, T*);                             \
  template void fold_bias(std::int64_t, const T*, const T*, const T*, const float*, const double*, \
                          double*, T*);                                                            \
  template void fold_bias(std::int64_t, const T*, const T*, const T*, const double*,               \
                          const double*, double*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
