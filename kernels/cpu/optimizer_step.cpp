#include <cmath>

#include "kernels/cpu/parallel.h"
#include "kernels/elementwise.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements per thread that pay for waking it

}  // namespace

template <typename T>
void sgd_update(std::int64_t n, const SgdStep& step, const T* grad, T* momentum_buffer, T* param) {
  const T lr = T(step.lr), momentum = T(step.momentum), decay = T(step.weight_decay);
  const bool nesterov = step.nesterov;
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    if (momentum_buffer == nullptr) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) param[i] -= lr * (grad[i] + decay * param[i]);
      return;
    }
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T g = grad[i] + decay * param[i];
      const T m = momentum * momentum_buffer[i] + g;
      momentum_buffer[i] = m;
      param[i] -= lr * (nesterov ? g + momentum * m : m);
    }
  });
}

template <typename T>
void move_average(std::int64_t n, double weight, const T* x, T* average) {
  const T w = T(weight);
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      average[i] = w == 1 ? x[i] : average[i] + w * (x[i] - average[i]);
    }
  });
}

template <typename T>
void adamw_update(std::int64_t n, const AdamWStep& step, const T* grad, T* exp_avg, T* exp_avg_sq,
                  T* param) {
  const double correction1 = 1 - std::pow(step.beta1, double(step.count));
  const double correction2 = 1 - std::pow(step.beta2, double(step.count));
  const T keep = T(1 - step.lr * step.weight_decay), rate = T(step.lr / correction1);
  const T beta1 = T(step.beta1), rest1 = T(1 - step.beta1);
  const T beta2 = T(step.beta2), rest2 = T(1 - step.beta2);
  const T root = T(std::sqrt(correction2)), eps = T(step.eps);
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T g = grad[i];
      const T m = beta1 * exp_avg[i] + rest1 * g;
      const T v = beta2 * exp_avg_sq[i] + rest2 * (g * g);
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      param[i] = keep * param[i] - rate * (m / (std::sqrt(v) / root + eps));
    }
  });
}

template void move_average(std::int64_t, double, const float*, float*);
template void move_average(std::int64_t, double, const double*, double*);
template void sgd_update(std::int64_t, const SgdStep&, const float*, float*, float*);
template void sgd_update(std::int64_t, const SgdStep&, const double*, double*, double*);
template void adamw_update(std::int64_t, const AdamWStep&, const float*, float*, float*, float*);
template void adamw_update(std::int64_t, const AdamWStep&, const double*, double*, double*,
                           double*);

}  // namespace steelyard::kernels
