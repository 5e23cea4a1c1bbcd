// Losses of softmax(logits) over rows, fused with their gradients.
#pragma once

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

using SoftmaxKernels =
    ForFloats<SoftmaxCrossEntropy, SoftmaxDivergence, ArgmaxRows, AddCorrectRows>;

}  // namespace steelyard::kernels
