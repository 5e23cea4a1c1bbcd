#include "kernels/optimizer_step.h"

#include <cmath>

#include "kernels/cpu/map.h"
#include "kernels/cpu/row_sums.h"

namespace steelyard::kernels {
template <typename T>
void sgd_update(std::span<const SgdTensor<T>> tensors, const SgdStep& step) {
  for (const SgdTensor<T>& t : tensors) {
    const SgdRule<T> rule(step, *t.lr, t.weight_decay);
    const T* grad = t.grad;
    T* momentum = t.momentum;
    T* param = t.param;
    if (momentum == nullptr) {
      map(t.size, [=](std::int64_t i) { rule.update(grad[i], param[i]); });
    } else {
      map(t.size, [=](std::int64_t i) { rule.update(grad[i], momentum[i], param[i]); });
    }
  }
}

void adamw_factors(const AdamWStep& step, double lr, double weight_decay, std::int64_t count,
                   double* factors) {
  const auto exponent = static_cast<double>(count);
  factors[0] = 1 - lr * weight_decay;
  factors[1] = lr / (1 - std::pow(step.beta1, exponent));
  factors[2] = std::sqrt(1 - std::pow(step.beta2, exponent));
}

template <typename T>
void adamw_update(std::span<const AdamWTensor<T>> tensors, const AdamWStep& step) {
  for (const AdamWTensor<T>& t : tensors) {
    const AdamWRule<T> rule(step, t.factors);
    const T* grad = t.grad;
    T* exp_avg = t.exp_avg;
    T* exp_avg_sq = t.exp_avg_sq;
    T* param = t.param;
    map(t.size, [=](std::int64_t i) { rule.update(grad[i], exp_avg[i], exp_avg_sq[i], param[i]); });
  }
}

template <typename T>
void move_averages(std::span<const AverageTensor<T>> tensors) {
  for (const AverageTensor<T>& t : tensors) {
    const T weight = T(*t.weight);
    const T* x = t.x;
    T* average = t.average;
    map(t.size, [=](std::int64_t i) { average[i] = moved_average(weight, x[i], average[i]); });
  }
}

template <typename T>
void sum_of_squares(std::span<const ValueTensor<T>> tensors, double* sum) {
  *sum = 0;
  for (const ValueTensor<T>& t : tensors) {
    *sum += row_sums(RowChunks(t.size, 1), [x = t.values](std::int64_t i, std::int64_t) {
      return double(x[i]) * double(x[i]);
    })[0];
  }
}

void clip_factor(std::int64_t count, const double* sums, double max_norm, double* norm,
                 double* factor) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += sums[i];
  *norm = std::sqrt(sum);
  *factor = clip_factor_of(*norm, max_norm);
}

template <typename T>
void scale_all(std::span<const ValueTensor<T>> tensors, const double* factor) {
  if (*factor == 1) return;
  const T by = T(*factor);
  for (const ValueTensor<T>& t : tensors) {
    map(t.size, [x = t.values, by](std::int64_t i) { x[i] *= by; });
  }
}

#define STEELYARD_INSTANTIATE(T)                                                 \
  template void sgd_update(std::span<const SgdTensor<T>>, const SgdStep&);       \
  template void adamw_update(std::span<const AdamWTensor<T>>, const AdamWStep&); \
  template void move_averages(std::span<const AverageTensor<T>>);                \
  template void sum_of_squares(std::span<const ValueTensor<T>>, double*);        \
  template void scale_all(std::span<const ValueTensor<T>>, const double*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
