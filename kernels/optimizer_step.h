// What a training step does to all parameters at once: updates, averages, and the limit on the
// norm of their gradients. T is float or double.
//
// Everything works on lists of tensors, so that a GPU needs few launches for many small ones. What
// changes from step to step lies in memory where the tensors are: a recorded CUDA graph that runs
// again reads it anew. The list itself is part of the launch and is not kept.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cuda_queue.h"
#include "kernels/elementwise/elementwise.h"

namespace steelyard::kernels {

// A parameter with its gradient and momentum (null: none).
template <typename T>
struct SgdTensor {
  std::int64_t size = 0;
  const double* lr = nullptr;
  const T* grad = nullptr;
  T* momentum = nullptr;
  T* param = nullptr;
  double weight_decay = 0;
};

struct SgdStep {
  double momentum = 0;
  bool nesterov = false;
};

// PyTorch's formulas: g = grad + weight_decay * p; m = momentum * m + g (m = g on the first step,
// which a zero m gives); p -= lr * (nesterov ? g + momentum * m : m).
template <typename T>
void sgd_update(std::span<const SgdTensor<T>> tensors, const SgdStep& step);

// A parameter with its gradient and moments. `factors` are those of adamw_factors().
template <typename T>
struct AdamWTensor {
  std::int64_t size = 0;
  const double* factors = nullptr;
  const T* grad = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  T* param = nullptr;
};

struct AdamWStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// What depends on a parameter's rate and decay and on how often it was updated: `count` is 1 on the
// first step.
inline constexpr int kAdamWFactors = 3;
void adamw_factors(const AdamWStep& step, double lr, double weight_decay, std::int64_t count,
                   double* factors);

// One AdamW step (Loshchilov and Hutter 2019; PyTorch's form).
template <typename T>
void adamw_update(std::span<const AdamWTensor<T>> tensors, const AdamWStep& step);

// average += *weight * (x - average); a weight of 1 copies x.
template <typename T>
struct AverageTensor {
  std::int64_t size = 0;
  const double* weight = nullptr;
  const T* x = nullptr;
  T* average = nullptr;
};
template <typename T>
void move_averages(std::span<const AverageTensor<T>> tensors);

template <typename T>
struct ValueTensor {
  std::int64_t size = 0;
  T* values = nullptr;
};

// *sum = sum of the squares of all values, in double, in an order that the list fixes.
template <typename T>
void sum_of_squares(std::span<const ValueTensor<T>> tensors, double* sum);

// *norm = the root of the sum of `count` sums of squares, *factor = max_norm / (norm + 1e-6) where
// that is below 1 and the norm is finite, else 1 (PyTorch's clip_grad_norm_).
void clip_factor(std::int64_t count, const double* sums, double max_norm, double* norm,
                 double* factor);

// values *= *factor; a factor of 1 leaves them alone.
template <typename T>
void scale_all(std::span<const ValueTensor<T>> tensors, const double* factor);

// The same on a GPU.
template <typename T>
void sgd_update(const CudaQueue& queue, std::span<const SgdTensor<T>> tensors, const SgdStep& step);
template <typename T>
void adamw_update(const CudaQueue& queue, std::span<const AdamWTensor<T>> tensors,
                  const AdamWStep& step);
template <typename T>
void move_averages(const CudaQueue& queue, std::span<const AverageTensor<T>> tensors);
template <typename T>
void sum_of_squares(const CudaQueue& queue, std::span<const ValueTensor<T>> tensors, double* sum);
void clip_factor(const CudaQueue& queue, std::int64_t count, const double* sums, double max_norm,
                 double* norm, double* factor);
template <typename T>
void scale_all(const CudaQueue& queue, std::span<const ValueTensor<T>> tensors,
               const double* factor);

// The formulas of one element. A rule holds the numbers of a step in the type of the tensors.
template <typename T>
struct SgdRule {
  T lr, momentum, decay;
  bool nesterov;

  STEELYARD_HOST_DEVICE SgdRule(const SgdStep& step, double rate, double weight_decay)
      : lr(static_cast<T>(rate)),
        momentum(static_cast<T>(step.momentum)),
        decay(static_cast<T>(weight_decay)),
        nesterov(step.nesterov) {}
  STEELYARD_HOST_DEVICE void update(T grad, T& param) const {
    param -= lr * (grad + decay * param);
  }
  STEELYARD_HOST_DEVICE void update(T grad, T& buffer, T& param) const {
    const T g = grad + decay * param;
    const T m = momentum * buffer + g;
    buffer = m;
    param -= lr * (nesterov ? g + momentum * m : m);
  }
};

template <typename T>
struct AdamWRule {
  T keep, rate, root, beta1, rest1, beta2, rest2, eps;

  STEELYARD_HOST_DEVICE AdamWRule(const AdamWStep& step, const double* factors)
      : keep(static_cast<T>(factors[0])),
        rate(static_cast<T>(factors[1])),
        root(static_cast<T>(factors[2])),
        beta1(static_cast<T>(step.beta1)),
        rest1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest2(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)) {}
  STEELYARD_HOST_DEVICE void update(T g, T& exp_avg, T& exp_avg_sq, T& param) const {
    const T m = beta1 * exp_avg + rest1 * g;
    const T v = beta2 * exp_avg_sq + rest2 * (g * g);
    exp_avg = m;
    exp_avg_sq = v;
    param = keep * param - rate * (m / (std::sqrt(v) / root + eps));
  }
};

template <typename T>
STEELYARD_HOST_DEVICE inline T moved_average(T weight, T x, T average) {
  return weight == T(1) ? x : average + weight * (x - average);
}

STEELYARD_HOST_DEVICE inline double clip_factor_of(double norm, double max_norm) {
  constexpr double kNormGuard = 1e-6;  // PyTorch's, against a zero norm
  const double factor = max_norm / (norm + kNormGuard);
  return is_finite(norm) && factor < 1 ? factor : 1.0;
}

}  // namespace steelyard::kernels
