// What a training step does to all parameters at once: updates, averages, and the limit on the
// norm of their gradients. T is float or double.
//
// Everything works on lists of tensors, so that a GPU needs few launches for many small ones. What
// changes from step to step lies in memory where the tensors are: a captured CUDA graph that runs
// again reads it anew. The list itself is part of the launch and is not kept.
#pragma once

#include <cmath>
#include <span>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// A parameter with its gradient and momentum (null: none). With `units` (null: none), positive
// sizes of its elements, no step of lr 1 moves an element by more than `most_units` of its own.
template <typename T>
struct SgdTensor {
  std::int64_t size = 0;
  const double* lr = nullptr;
  const T* grad = nullptr;
  T* momentum = nullptr;
  T* param = nullptr;
  double weight_decay = 0;
  const T* units = nullptr;
  double most_units = 1;
};

struct SgdStep {
  double momentum = 0;
  bool nesterov = false;
};

// PyTorch's formulas: g = grad + weight_decay * p; m = momentum * m + g (m = g on the first step,
// which a zero m gives); p -= lr * (nesterov ? g + momentum * m : m). With units, g is first
// limited to (1 - momentum) * most_units of them: m then stays within most_units.
template <typename T>
struct SgdUpdate {
  std::span<const SgdTensor<T>> tensors;
  SgdStep step;

  struct Element {
    SgdTensor<T> t;
    T lr, factor, decay, limit;
    bool nesterov;

    // NaN stays.
    STEELYARD_HOST_DEVICE T limited(T g, std::int64_t i) const {
      if (t.units == nullptr) return g;
      const T most = limit * t.units[i];
      return g > most ? most : (g < -most ? -most : g);
    }
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
      const T g = limited(t.grad[i] + decay * t.param[i], i);
      if (t.momentum == nullptr) {
        t.param[i] -= lr * g;
        return;
      }
      const T m = factor * t.momentum[i] + g;
      t.momentum[i] = m;
      t.param[i] -= lr * (nesterov ? g + factor * m : m);
    }
  };
  STEELYARD_HOST_DEVICE Element of(const SgdTensor<T>& t) const {
    return {t,
            static_cast<T>(*t.lr),
            static_cast<T>(step.momentum),
            static_cast<T>(t.weight_decay),
            static_cast<T>(t.most_units * (1 - step.momentum)),
            step.nesterov};
  }
};

// A parameter with its gradient and moments. `factors` are those of adamw_factors(); steps are
// multiplied by `units` (null: none), sizes of its elements.
template <typename T>
struct AdamWTensor {
  std::int64_t size = 0;
  const double* factors = nullptr;
  const T* grad = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  T* param = nullptr;
  const T* units = nullptr;
};

struct AdamWStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// What depends on a parameter's rate and decay and on how often it was updated: `count` is 1 on the
// first step. Computed on the host.
inline constexpr int kAdamWFactors = 3;
void adamw_factors(const AdamWStep& step, double lr, double weight_decay, std::int64_t count,
                   double* factors);

// One AdamW step (Loshchilov and Hutter 2019; PyTorch's form).
template <typename T>
struct AdamWUpdate {
  std::span<const AdamWTensor<T>> tensors;
  AdamWStep step;

  struct Element {
    AdamWTensor<T> t;
    T keep, rate, root, beta1, rest1, beta2, rest2, eps;

    STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
      const T g = t.grad[i];
      const T m = beta1 * t.exp_avg[i] + rest1 * g;
      const T v = beta2 * t.exp_avg_sq[i] + rest2 * (g * g);
      t.exp_avg[i] = m;
      t.exp_avg_sq[i] = v;
      const T own = t.units == nullptr ? rate : rate * t.units[i];
      t.param[i] = keep * t.param[i] - own * (m / (std::sqrt(v) / root + eps));
    }
  };
  STEELYARD_HOST_DEVICE Element of(const AdamWTensor<T>& t) const {
    return {t,
            static_cast<T>(t.factors[0]),
            static_cast<T>(t.factors[1]),
            static_cast<T>(t.factors[2]),
            static_cast<T>(step.beta1),
            static_cast<T>(1 - step.beta1),
            static_cast<T>(step.beta2),
            static_cast<T>(1 - step.beta2),
            static_cast<T>(step.eps)};
  }
};

template <typename T>
struct AverageTensor {
  std::int64_t size = 0;
  const double* weight = nullptr;
  const T* x = nullptr;
  T* average = nullptr;
};

// average += *weight * (x - average); a weight of 1 copies x.
template <typename T>
struct MoveAverages {
  std::span<const AverageTensor<T>> tensors;

  struct Element {
    AverageTensor<T> t;
    T weight;

    STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
      const T old = t.average[i];
      t.average[i] = weight == T(1) ? t.x[i] : old + weight * (t.x[i] - old);
    }
  };
  STEELYARD_HOST_DEVICE Element of(const AverageTensor<T>& t) const {
    return {t, static_cast<T>(*t.weight)};
  }
};

template <typename T>
struct ValueTensor {
  std::int64_t size = 0;
  T* values = nullptr;
};

// *sum = sum of the squares of all values, in double, in an order that the list fixes.
template <typename T>
struct SumOfSquares {
  std::span<const ValueTensor<T>> tensors;
  double* sum;
};

// *norm = the root of the sum of `count` sums of squares, *factor = max_norm / (norm + 1e-6) where
// that is below 1 and the norm is finite, else 1 (PyTorch's clip_grad_norm_).
struct ClipFactor {
  std::int64_t count;
  const double* sums;
  double max_norm;
  double *norm, *factor;

  STEELYARD_HOST_DEVICE void operator()() const {
    constexpr double kNormGuard = 1e-6;  // PyTorch's, against a zero norm
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += sums[i];
    const double root = std::sqrt(sum);
    const double limited = max_norm / (root + kNormGuard);
    *norm = root;
    *factor = root - root == 0 && limited < 1 ? limited : 1.0;
  }
};

// values *= *factor; a factor of 1 leaves them alone.
template <typename T>
struct ScaleAll {
  std::span<const ValueTensor<T>> tensors;
  const double* factor;

  struct Element {
    T* x;
    T by;
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { x[i] *= by; }
  };
  STEELYARD_HOST_DEVICE bool idle() const { return *factor == 1; }
  STEELYARD_HOST_DEVICE Element of(const ValueTensor<T>& t) const {
    return {t.values, static_cast<T>(*factor)};
  }
};

using OptimizerStepKernels =
    JoinedKernels<ForFloats<SgdUpdate, AdamWUpdate, MoveAverages, SumOfSquares, ScaleAll>,
                  KernelList<ClipFactor>>;

}  // namespace steelyard::kernels
