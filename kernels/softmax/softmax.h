// softmax over rows, and losses of it, fused with their gradients.
#pragma once

#include <cmath>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/exponential.h"
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

// Softmax of codes, as ONNX Runtime's QLinearSoftmax has it: table[d] = rint(one * exp(-d * scale))
// of the distance d to the row's largest code, where `one` is so small that sums fit 32 bits. n =
// 256.
struct SoftmaxTable {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n, columns;
  const float* scale;  // of the input
  std::uint32_t* table;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t d) const {
    const double most = 4294967295.0 / static_cast<double>(columns);
    const double one = most < 8388607.0 ? most : 8388607.0;
    const double exponent = -static_cast<double>(d) * static_cast<double>(*scale);
    table[d] = static_cast<std::uint32_t>(round_half_even(one * exp_of_negative(exponent)));
  }
};
// n rows: codes = (table[d] * floor(1 / scale) + sum / 2) / sum + zero point, in integers.
template <typename In, typename Code>
struct SoftmaxCodes {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n, columns;
  const In* x;
  const std::uint32_t* table;
  const float* scale;  // of the output
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row) const {
    const In* from = x + row * columns;
    Code* to = codes + row * columns;
    In largest = from[0];
    for (std::int64_t c = 1; c < columns; ++c) largest = from[c] > largest ? from[c] : largest;
    std::uint64_t sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += table[largest - from[c]];
    const auto steps = static_cast<std::uint64_t>(1.0F / *scale);
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::uint64_t share = (table[largest - from[c]] * steps + sum / 2) / sum;
      const std::int32_t code = static_cast<std::int32_t>(share) + *zero_point;
      to[c] = static_cast<Code>(code > range.qmax ? range.qmax : code);
    }
  }
};

using SoftmaxKernels = JoinedKernels<
    ForFloats<Softmax, SoftmaxBackward, SoftmaxCrossEntropy, SoftmaxDivergence, ArgmaxRows,
              AddCorrectRows>,
    KernelList<SoftmaxTable, SoftmaxCodes<std::int8_t, std::int8_t>,
               SoftmaxCodes<std::int8_t, std::uint8_t>, SoftmaxCodes<std::uint8_t, std::int8_t>,
               SoftmaxCodes<std::uint8_t, std::uint8_t>>>;

}  // namespace steelyard::kernels
