// softmax over rows, and losses of it, fused with their gradients.
#pragma once

#include <cmath>
#include <type_traits>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/exponential.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/softmax/formulas.h"

namespace steelyard::kernels {

// *loss = mean over rows of the cross-entropy of logits[rows, columns] against labels[rows], label
// smoothing eps in [0, 1) (Szegedy et al. 2016: target = (1-eps) * onehot + eps / columns).
// Writes grad_logits[rows, columns] = d loss / d logits when not null. Stable for large logits; a
// NaN logit gives a NaN loss, as do zero rows. Labels must lie in [0, columns): on the CPU the
// caller checks it; on a GPU, where nobody looks at them, one outside gives a NaN loss and
// gradients of NaN in its row.
template <typename T>
struct SoftmaxCrossEntropy {
  std::int64_t rows, columns;
  const T* logits;
  const std::int64_t* labels;
  double label_smoothing;
  T *loss, *grad_logits;

  template <class Team>
  STEELYARD_HOST_DEVICE double row(std::int64_t r, const Team& team) const {
    const T* from = logits + r * columns;
    T* grad = grad_logits == nullptr ? nullptr : grad_logits + r * columns;
    const T largest = largest_of_row(team, columns, from);
    double sum = 0, shifted = 0;  // of exp(row - largest), of row - largest
    team.each(columns, [&](std::int64_t c) {
      const T d = from[c] - largest;
      const T e = std::exp(d);
      sum += static_cast<double>(e);
      shifted += static_cast<double>(d);
      if (grad != nullptr) grad[c] = e;
    });
    sum = sum_of(team, sum);
    shifted = sum_of(team, shifted);
    const std::int64_t label = labels[r];
    const bool known = label >= 0 && label < columns;
    const SmoothedTarget target(columns, label, label_smoothing);
    if (grad != nullptr) {
      const double scale = 1.0 / static_cast<double>(rows);
      team.each(columns, [&](std::int64_t c) {
        const double slope = (static_cast<double>(grad[c]) / sum - target.at(c)) * scale;
        grad[c] = static_cast<T>(known ? slope : kNotANumber);
      });
    }
    const double at_label =
        known ? static_cast<double>(from[label]) - static_cast<double>(largest) : kNotANumber;
    return target.loss(sum, at_label, shifted);
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *loss = static_cast<T>(sum / static_cast<double>(rows));
  }
};

// *loss = mean over rows of T^2 * KL(softmax(teacher / T) || softmax(logits / T)), T = temperature
// > 0, both [rows, columns]; the factor T^2 keeps gradients of one size for every T (Hinton et al.
// 2015, arXiv:1503.02531). Writes grad_logits[rows, columns] = T * (softmax(logits / T) -
// softmax(teacher / T)) / rows when not null. A NaN anywhere gives a NaN loss, as do zero rows.
template <typename T>
struct SoftmaxDivergence {
  std::int64_t rows, columns;
  const T *logits, *teacher;
  double temperature;
  T *loss, *grad_logits;

  template <class Team>
  STEELYARD_HOST_DEVICE double row(std::int64_t r, const Team& team) const {
    const T *ours = logits + r * columns, *theirs = teacher + r * columns;
    const double our_sum = log_sum_exp(team, columns, ours, temperature);
    const double their_sum = log_sum_exp(team, columns, theirs, temperature);
    double divergence = 0;
    team.each(columns, [&](std::int64_t c) {
      const Divergence at(static_cast<double>(theirs[c]) / temperature - their_sum,
                          static_cast<double>(ours[c]) / temperature - our_sum);
      divergence += at.term;
      if (grad_logits == nullptr) return;
      grad_logits[r * columns + c] =
          static_cast<T>(at.slope() * (temperature / static_cast<double>(rows)));
    });
    return sum_of(team, divergence);
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *loss = static_cast<T>(sum / static_cast<double>(rows) * temperature * temperature);
  }
};

// predictions[rows] = index of the largest logit, the first of equals; a NaN counts as largest.
template <typename T>
struct ArgmaxRows {
  std::int64_t rows, columns;
  const T* logits;
  std::int64_t* predictions;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const std::int64_t best = place_of_largest(team, columns, logits + r * columns);
    if (team.leads()) predictions[r] = best;
  }
};

// *correct += number of rows whose largest logit, in the sense of ArgmaxRows, is that of the label
// and a number.
template <typename T>
struct AddCorrectRows {
  std::int64_t rows, columns;
  const T* logits;
  const std::int64_t* labels;
  std::int64_t* correct;

  template <class Team>
  STEELYARD_HOST_DEVICE double row(std::int64_t r, const Team& team) const {
    const T* x = logits + r * columns;
    const std::int64_t best = place_of_largest(team, columns, x);
    return best == labels[r] && !std::isnan(x[best]) ? 1 : 0;
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *correct += static_cast<std::int64_t>(sum);
  }
};

// y[row, c] = exp(x[row, c]) / sum of exp(x[row, ...]), computed in double from differences to the
// row's largest: stable for large x. A NaN makes its row NaN.
template <typename T>
struct Softmax {
  std::int64_t rows, columns;
  const T* x;
  T* y;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const T* from = x + r * columns;
    const auto largest = static_cast<double>(largest_of_row(team, columns, from));
    const auto share = [&](std::int64_t c) {
      return std::exp(static_cast<double>(from[c]) - largest);
    };
    double sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += share(c); });
    sum = sum_of(team, sum);
    team.each(columns,
              [&](std::int64_t c) { y[r * columns + c] = static_cast<T>(share(c) / sum); });
  }
};
// grad_x = y * (grad_y - sum over the row of y * grad_y).
template <typename T>
struct SoftmaxBackward {
  std::int64_t rows, columns;
  const T *y, *grad_y;
  T* grad_x;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const std::int64_t first = r * columns;
    const auto shares = [&](std::int64_t c) { return static_cast<double>(y[first + c]); };
    const auto grads = [&](std::int64_t c) { return static_cast<double>(grad_y[first + c]); };
    double sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += shares(c) * grads(c); });
    sum = sum_of(team, sum);
    team.each(columns, [&](std::int64_t c) {
      grad_x[first + c] = static_cast<T>(shares(c) * (grads(c) - sum));
    });
  }
};

// y[row, c] = x[row, c] - log(sum of exp(x[row, ...])), computed as Softmax is. A NaN makes its row
// NaN.
template <typename T>
struct LogSoftmax {
  std::int64_t rows, columns;
  const T* x;
  T* y;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const T* from = x + r * columns;
    const auto largest = static_cast<double>(largest_of_row(team, columns, from));
    const auto distance = [&](std::int64_t c) { return static_cast<double>(from[c]) - largest; };
    double sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += std::exp(distance(c)); });
    const double log_sum = std::log(sum_of(team, sum));
    team.each(columns,
              [&](std::int64_t c) { y[r * columns + c] = static_cast<T>(distance(c) - log_sum); });
  }
};
// grad_x = grad_y - exp(y) * (sum over the row of grad_y).
template <typename T>
struct LogSoftmaxBackward {
  std::int64_t rows, columns;
  const T *y, *grad_y;
  T* grad_x;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const std::int64_t first = r * columns;
    const auto grads = [&](std::int64_t c) { return static_cast<double>(grad_y[first + c]); };
    double sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += grads(c); });
    sum = sum_of(team, sum);
    team.each(columns, [&](std::int64_t c) {
      const double share = std::exp(static_cast<double>(y[first + c]));
      grad_x[first + c] = static_cast<T>(grads(c) - share * sum);
    });
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
// The codes of a row whose exponentials have a sum: (exponential * floor(1 / scale) + sum / 2) /
// sum
// + zero point, in integers. Those lie below 2^53, so that the quotient of doubles, at most 257, is
// rounded down as one of integers: it lies at least 1 / sum below the next integer. Doubles are
// divided several times as fast.
struct SoftmaxShares {
  STEELYARD_HOST_DEVICE SoftmaxShares(float scale, std::int32_t zero_point, std::int32_t qmax,
                                      std::uint64_t sum)
      : steps(static_cast<std::int32_t>(1.0F / scale)),
        half(static_cast<double>(sum / 2)),
        whole(static_cast<double>(sum)),
        zero(zero_point),
        most(qmax) {}

  STEELYARD_HOST_DEVICE std::int32_t code(std::int32_t exponential) const {
    const auto term = static_cast<double>(exponential);
    const std::int32_t code = static_cast<std::int32_t>((term * steps + half) / whole) + zero;
    return code > most ? most : code;
  }

  double steps, half, whole;
  std::int32_t zero, most;
};

template <typename In, typename Code>
struct SoftmaxCodes {
  std::int64_t rows, columns;
  const In* x;
  const std::uint32_t* table;
  const float* scale;  // of the output
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const;
};

// SoftmaxCodes::row() for one thread, of bytes whose order is that of values once they have been
// joined with `sign`: one function for all types, in loops that compilers vectorize.
[[gnu::noinline]] STEELYARD_HOST_DEVICE inline void softmax_row_of_bytes(
    const SoftmaxCodes<std::uint8_t, std::uint8_t>& k, std::int64_t r, std::uint8_t sign) {
  const std::int64_t columns = k.columns;
  const std::uint8_t* const x = k.x + r * columns;
  std::uint8_t largest = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto ordered = static_cast<std::uint8_t>(x[c] ^ sign);
    largest = ordered > largest ? ordered : largest;
  }
  const auto first_code = static_cast<std::uint8_t>(largest ^ sign);
  const std::uint32_t* const table = k.table;
  const auto exponential = [=](std::int64_t c) {
    return table[static_cast<std::uint8_t>(first_code - x[c])];
  };
  std::uint64_t sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += exponential(c);
  const SoftmaxShares shares(*k.scale, *k.zero_point, k.range.qmax, sum);
  constexpr std::int64_t kPart = 256;
  std::int32_t part[kPart];
  for (std::int64_t first = 0; first < columns; first += kPart) {
    const std::int64_t n = columns - first < kPart ? columns - first : kPart;
    for (std::int64_t c = 0; c < n; ++c) {
      part[c] = shares.code(static_cast<std::int32_t>(exponential(first + c)));
    }
    std::uint8_t* const to = k.codes + r * columns + first;
    for (std::int64_t c = 0; c < n; ++c) to[c] = static_cast<std::uint8_t>(part[c]);
  }
}

template <typename In, typename Code>
template <class Team>
STEELYARD_HOST_DEVICE void SoftmaxCodes<In, Code>::row(std::int64_t r, const Team& team) const {
  if constexpr (std::is_same_v<Team, OneThread>) {
    softmax_row_of_bytes({rows, columns, reinterpret_cast<const std::uint8_t*>(x), table, scale,
                          zero_point, range, reinterpret_cast<std::uint8_t*>(codes)},
                         r, std::is_signed_v<In> ? 0x80 : 0);
  } else {
    const In* from = x + r * columns;
    const auto value = [from](std::int64_t c) { return static_cast<float>(from[c]); };
    const float largest = team.template largest<float>(columns, value);
    const auto exponential = [from, largest, of = table](std::int64_t c) {
      return of[static_cast<std::int32_t>(largest) - from[c]];
    };
    std::uint64_t sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += exponential(c); });
    const SoftmaxShares shares(*scale, *zero_point, range.qmax, sum_of(team, sum));
    team.each(columns, [&](std::int64_t c) {
      codes[r * columns + c] =
          static_cast<Code>(shares.code(static_cast<std::int32_t>(exponential(c))));
    });
  }
}

using SoftmaxKernels = JoinedKernels<
    ForFloats<Softmax, SoftmaxBackward, LogSoftmax, LogSoftmaxBackward, SoftmaxCrossEntropy,
              SoftmaxDivergence, ArgmaxRows, AddCorrectRows>,
    KernelList<SoftmaxTable, SoftmaxCodes<std::int8_t, std::int8_t>,
               SoftmaxCodes<std::int8_t, std::uint8_t>, SoftmaxCodes<std::uint8_t, std::int8_t>,
               SoftmaxCodes<std::uint8_t, std::uint8_t>>>;

}  // namespace steelyard::kernels
