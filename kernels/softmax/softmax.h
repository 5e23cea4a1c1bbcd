// softmax over rows, and losses of it, fused with their gradients.
#pragma once

#include <cmath>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// *loss = mean over rows of the cross-entropy of logits[rows, classes] against labels[rows], label
// smoothing eps in [0, 1) (Szegedy et al. 2016: target = (1-eps) * onehot + eps / classes).
// Writes grad_logits[rows, classes] = d loss / d logits when not null. Stable for large logits; a
// NaN logit gives a NaN loss, as do zero rows. Labels must lie in [0, classes): on the CPU the
// caller checks it; on a GPU, where nobody looks at them, one outside gives a NaN loss and
// gradients of NaN in its row.
template <typename T>
struct SoftmaxCrossEntropy {
  std::int64_t rows, classes;
  const T* logits;
  const std::int64_t* labels;
  double label_smoothing;
  T *loss, *grad_logits;
};

// *loss = mean over rows of T^2 * KL(softmax(teacher / T) || softmax(logits / T)), T = temperature
// > 0, both [rows, classes]; the factor T^2 keeps gradients of one size for every T (Hinton et al.
// 2015, arXiv:1503.02531). Writes grad_logits[rows, classes] = T * (softmax(logits / T) -
// softmax(teacher / T)) / rows when not null. A NaN anywhere gives a NaN loss, as do zero rows.
template <typename T>
struct SoftmaxDivergence {
  std::int64_t rows, classes;
  const T *logits, *teacher;
  double temperature;
  T *loss, *grad_logits;
};

// predictions[rows] = index of the largest logit, the first of equals; a NaN counts as largest.
template <typename T>
struct ArgmaxRows {
  std::int64_t rows, classes;
  const T* logits;
  std::int64_t* predictions;
};

// *correct += number of rows whose largest logit, in the sense of ArgmaxRows, is that of the label.
template <typename T>
struct AddCorrectRows {
  std::int64_t rows, classes;
  const T* logits;
  const std::int64_t* labels;
  std::int64_t* correct;
};

// y[row, c] = exp(x[row, c]) / sum of exp(x[row, ...]), of n rows, computed in double from
// differences to the row's largest: stable for large x. A NaN makes its row NaN.
template <typename T>
struct Softmax {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n, columns;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row) const {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    double largest = static_cast<double>(from[0]);
    for (std::int64_t c = 1; c < columns; ++c) {
      const auto value = static_cast<double>(from[c]);
      if (value > largest) largest = value;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += std::exp(static_cast<double>(from[c]) - largest);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] = static_cast<T>(std::exp(static_cast<double>(from[c]) - largest) / sum);
    }
  }
};
// grad_x = y * (grad_y - sum over the row of y * grad_y).
template <typename T>
struct SoftmaxBackward {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n, columns;
  const T *y, *grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row) const {
    const std::int64_t first = row * columns;
    double sum = 0;
    for (std::int64_t i = first; i < first + columns; ++i) {
      sum += static_cast<double>(y[i]) * static_cast<double>(grad_y[i]);
    }
    for (std::int64_t i = first; i < first + columns; ++i) {
      grad_x[i] =
          static_cast<T>(static_cast<double>(y[i]) * (static_cast<double>(grad_y[i]) - sum));
    }
  }
};

using SoftmaxKernels = ForFloats<Softmax, SoftmaxBackward, SoftmaxCrossEntropy, SoftmaxDivergence,
                                 ArgmaxRows, AddCorrectRows>;

}  // namespace steelyard::kernels
