// Losses of rows and of elements other than softmax's own (kernels/softmax), with their gradients.
//
// Rows are computed one by one, in double, and their losses added up by SumOfRows.
#pragma once

#include <cmath>
#include <limits>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/softmax/formulas.h"

namespace steelyard::kernels {

// *total = the sum of the labels' class weights; a label outside [0, classes) makes it NaN.
struct SumLabelWeights {
  std::int64_t n, classes;
  const std::int64_t* labels;
  const double* class_weights;
  double* total;
  STEELYARD_HOST_DEVICE double term(std::int64_t i) const {
    const bool known = labels[i] >= 0 && labels[i] < classes;
    return known ? class_weights[labels[i]] : kNotANumber;
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const { *total = sum; }
};

// *result = factor * the sum of n values, divided by *total where there is one.
template <typename T>
struct SumOfRows {
  std::int64_t n;
  const double *values, *total;
  double factor;
  T* result;
  STEELYARD_HOST_DEVICE double term(std::int64_t i) const { return values[i]; }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *result = static_cast<T>(total == nullptr ? sum * factor : sum * factor / *total);
  }
};

// losses[row] = sum over c of a[c] * -log softmax(logits[row])[c], where a[c] = weight[c]
// * ((1 - label_smoothing) * q[c] + label_smoothing / columns), and q is the row of `targets`, or
// `labels` as one-hot rows where there are no targets. No class weights are weights of 1. Writes
// grad = d losses / d logits * factor / *total (a null total: 1) unless it is null. A label outside
// [0, columns) gives NaN.
template <typename T>
struct CrossEntropyRows {
  std::int64_t rows, columns;
  const T* logits;
  const std::int64_t* labels;
  const T* targets;
  const double* class_weights;
  double label_smoothing;
  const double* total;
  double factor;
  double* losses;
  T* grad;

  STEELYARD_HOST_DEVICE double share(std::int64_t r, std::int64_t c) const {
    const double q = targets != nullptr ? static_cast<double>(targets[r * columns + c])
                     : labels[r] == c   ? 1.0
                                        : 0.0;
    const double smoothed =
        (1 - label_smoothing) * q + label_smoothing / static_cast<double>(columns);
    return class_weights == nullptr ? smoothed : class_weights[c] * smoothed;
  }

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const T* x = logits + r * columns;
    const auto largest = static_cast<double>(largest_of_row(team, columns, x));
    const auto shifted = [&](std::int64_t c) { return static_cast<double>(x[c]) - largest; };
    double sum = 0;
    team.each(columns, [&](std::int64_t c) { sum += std::exp(shifted(c)); });
    sum = sum_of(team, sum);
    const bool known = targets != nullptr || (labels[r] >= 0 && labels[r] < columns);
    const double log_sum = known ? std::log(sum) : kNotANumber;
    double loss = 0, shares = 0;
    team.each(columns, [&](std::int64_t c) {
      const double a = share(r, c);
      shares += a;
      // 0 times the infinity of a logit of -infinity is nothing.
      if (a != 0) loss += a * (log_sum - shifted(c));
    });
    loss = sum_of(team, loss);
    shares = sum_of(team, shares);
    if (team.leads()) losses[r] = known ? loss : log_sum;
    if (grad == nullptr) return;
    const double scale = total == nullptr ? factor : factor / *total;
    team.each(columns, [&](std::int64_t c) {
      const double p = std::exp(shifted(c) - log_sum);
      grad[r * columns + c] = static_cast<T>((p * shares - share(r, c)) * scale);
    });
  }
};

// ranks[row] = how many logits come before the label's: larger ones, and equal ones at smaller
// places; a NaN counts as largest. A label outside [0, columns) comes last.
template <typename T>
struct RankOfLabel {
  std::int64_t rows, columns;
  const T* logits;
  const std::int64_t* labels;
  std::int64_t* ranks;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const T* x = logits + r * columns;
    const std::int64_t label = labels[r];
    const bool known = label >= 0 && label < columns;
    std::int64_t before = 0;
    team.each(columns, [&](std::int64_t c) {
      const bool larger = !known || is_larger(x[c], x[label]);
      const bool equal = !larger && !is_larger(x[label], x[c]);
      before += larger || (equal && c < label) ? 1 : 0;
    });
    before = sum_of(team, before);
    if (team.leads()) ranks[r] = before;
  }
};

// sums[c] = the sum of (x - y)^2 over column c of [rows, channels].
template <typename T>
struct SquaredErrors {
  static constexpr int kTerms = 1;
  std::int64_t rows, channels;
  const T *x, *y;
  double* sums;
  template <int>
  STEELYARD_HOST_DEVICE double term(std::int64_t i, std::int64_t) const {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    return d * d;
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t c, const double (&sum)[1]) const {
    sums[c] = sum[0];
  }
};

// *mean = the mean over n elements of loss.value(a[i], b[i], i), summed in double.
template <typename T, class Loss>
struct MeanLoss {
  std::int64_t n;
  const T *a, *b;
  Loss loss;
  T* mean;
  STEELYARD_HOST_DEVICE double term(std::int64_t i) const {
    return loss.value(static_cast<double>(a[i]), static_cast<double>(b[i]), i);
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *mean = static_cast<T>(sum / static_cast<double>(n));
  }
};
// grad_a = d mean / d a.
template <typename T, class Loss>
struct MeanLossBackward {
  std::int64_t n;
  const T *a, *b;
  Loss loss;
  T* grad_a;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto left = static_cast<double>(a[i]), right = static_cast<double>(b[i]);
    grad_a[i] = static_cast<T>(loss.mean_slope(left, right, i, static_cast<double>(n)));
  }
};
template <class Loss>
using MeanLossKernels = KernelList<MeanLoss<float, Loss>, MeanLoss<double, Loss>,
                                   MeanLossBackward<float, Loss>, MeanLossBackward<double, Loss>>;

// (a - b)^2.
struct SquaredError {
  STEELYARD_HOST_DEVICE double value(double a, double b, std::int64_t) const {
    return (a - b) * (a - b);
  }
  STEELYARD_HOST_DEVICE double mean_slope(double a, double b, std::int64_t, double n) const {
    return (a - b) * (2.0 / n);
  }
};

// 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta), d = a - b.
struct HuberError {
  double delta;
  STEELYARD_HOST_DEVICE double value(double a, double b, std::int64_t) const {
    const double d = std::abs(a - b);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
  }
  STEELYARD_HOST_DEVICE double mean_slope(double a, double b, std::int64_t, double n) const {
    return clamp_keeping_nan(a - b, -delta, delta) / n;
  }
};

// -p b log sigmoid(a) - (1 - b) log(1 - sigmoid(a)): a are logits, b targets in [0, 1], p the
// weight of positive targets of an element, one for all or one for each column.
struct BinaryCrossEntropy {
  std::int64_t count;  // of the weights; 0: all are 1
  const double* weights;
  STEELYARD_HOST_DEVICE double weight(double target, std::int64_t i) const {
    return 1 + ((count == 0 ? 1.0 : weights[i % count]) - 1) * target;
  }
  STEELYARD_HOST_DEVICE double value(double logit, double target, std::int64_t i) const {
    // exp(-|x|) stays in range: log(1 + exp(-x)).
    const double softplus =
        std::log1p(std::exp(logit < 0 ? logit : -logit)) + (logit < 0 ? -logit : 0.0);
    return (1 - target) * logit + weight(target, i) * softplus;
  }
  STEELYARD_HOST_DEVICE double mean_slope(double logit, double target, std::int64_t i,
                                          double n) const {
    const double e = std::exp(logit < 0 ? logit : -logit);
    const double sigmoid_of_negative = logit < 0 ? 1 / (1 + e) : e / (1 + e);
    return (1 - target - weight(target, i) * sigmoid_of_negative) / n;
  }
};

// losses[row] = 1 - cos(x[row], y[row]); 1e-12 is added to both squared lengths, so that a row of
// zeros has a cosine of 0. Writes grad_x = d losses / d x * factor unless it is null.
template <typename T>
struct CosineRows {
  std::int64_t rows, columns;
  const T *x, *y;
  double factor;
  double* losses;
  T* grad_x;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const T *a = x + r * columns, *b = y + r * columns;
    const double tiny = team.leads() ? 1e-12 : 0;
    double product = 0, own = tiny, other = tiny;
    team.each(columns, [&](std::int64_t c) {
      const auto u = static_cast<double>(a[c]), v = static_cast<double>(b[c]);
      product += u * v;
      own += u * u;
      other += v * v;
    });
    own = sum_of(team, own);
    const double lengths = std::sqrt(own) * std::sqrt(sum_of(team, other));
    const double cosine = sum_of(team, product) / lengths;
    if (team.leads()) losses[r] = 1 - cosine;
    if (grad_x == nullptr) return;
    team.each(columns, [&](std::int64_t c) {
      const double slope =
          static_cast<double>(b[c]) / lengths - cosine * static_cast<double>(a[c]) / own;
      grad_x[r * columns + c] = static_cast<T>(-slope * factor);
    });
  }
};

// Connectionist temporal classification (Graves et al. 2006): losses[sample] = -log of the
// probability of all ways in which the frames' classes, repeats joined and blanks dropped, spell
// the sample's target, divided by the target's length (at least 1). Of n samples: logits [n,
// frames, classes], whose softmax are the frames' probabilities; targets [n, length], each followed
// by -1 where it is shorter; frames of each sample in `frames_of`, null for all. Writes grad = d
// losses / d logits * factor unless it is null. A sample that no way spells has an infinite loss
// and gradients of NaN; with zero_infinity both are 0. A target that is no class, or the blank,
// gives NaN.
template <typename T>
struct CtcRows {
  static constexpr std::int64_t kGrain = 1;
  std::int64_t n, frames, classes, length;
  const T* logits;
  const std::int64_t *targets, *frames_of;
  std::int64_t blank;
  bool zero_infinity;
  double factor;
  double* workspace;  // workspace_size() for each sample
  double* losses;
  T* grad;

  static constexpr double kNever = -std::numeric_limits<double>::infinity();

  // The doubles of the workspace of one sample: log sums of the frames, forward sums of every
  // state, backward sums of two frames, and a frame's gradient.
  STEELYARD_HOST_DEVICE std::int64_t workspace_size() const {
    const std::int64_t states = 2 * length + 1;
    return frames + frames * states + 2 * states + classes;
  }

  STEELYARD_HOST_DEVICE static double log_add(double a, double b) {
    if (a == kNever) return b;
    if (b == kNever) return a;
    return a > b ? a + std::log1p(std::exp(b - a)) : b + std::log1p(std::exp(a - b));
  }

  // Between the blanks stand the target's classes.
  STEELYARD_HOST_DEVICE std::int64_t class_of(const std::int64_t* target,
                                              std::int64_t state) const {
    return state % 2 == 0 ? blank : target[state / 2];
  }
  // Whether a way may go from the state before the last to this one.
  STEELYARD_HOST_DEVICE bool may_skip(const std::int64_t* target, std::int64_t state) const {
    return state % 2 == 1 && state >= 2 && target[state / 2] != target[state / 2 - 1];
  }

  // The target's length, or -1 where it is not one.
  STEELYARD_HOST_DEVICE std::int64_t length_of(const std::int64_t* target) const {
    std::int64_t own = 0;
    while (own < length && target[own] != -1) {
      if (target[own] < 0 || target[own] >= classes || target[own] == blank) return -1;
      ++own;
    }
    return own;
  }

  STEELYARD_HOST_DEVICE void fill(std::int64_t sample, double value) const {
    if (grad == nullptr) return;
    const std::int64_t values = frames * classes;
    for (std::int64_t i = 0; i < values; ++i) grad[sample * values + i] = static_cast<T>(value);
  }

  STEELYARD_HOST_DEVICE void operator()(std::int64_t sample) const {
    const std::int64_t* target = targets + sample * length;
    const std::int64_t own = length_of(target);
    const std::int64_t last = frames_of == nullptr ? frames : frames_of[sample];
    const double nan = kNotANumber;
    if (own < 0 || last < 0 || last > frames) {
      losses[sample] = nan;
      return fill(sample, nan);
    }
    const std::int64_t states = 2 * own + 1;
    double* log_sums = workspace + sample * workspace_size();
    double* forward = log_sums + frames;
    const T* x = logits + sample * frames * classes;
    sum_frames(x, last, log_sums);
    double log_likelihood = own == 0 && last == 0 ? 0.0 : kNever;
    if (last > 0) {
      go_forward(x, target, last, states, log_sums, forward);
      const double* end = forward + (last - 1) * states;
      log_likelihood = log_add(end[states - 1], states > 1 ? end[states - 2] : kNever);
    }
    if (log_likelihood == kNever) {
      losses[sample] = zero_infinity ? 0.0 : -kNever;
      return fill(sample, zero_infinity ? 0.0 : nan);
    }
    const double characters = static_cast<double>(own > 0 ? own : 1);
    losses[sample] = -log_likelihood / characters;
    if (grad == nullptr) return;
    fill(sample, 0);
    go_backward(sample, target, last, states, log_likelihood, factor / characters);
  }

  STEELYARD_HOST_DEVICE void sum_frames(const T* x, std::int64_t last, double* log_sums) const {
    for (std::int64_t t = 0; t < last; ++t) {
      log_sums[t] = log_sum_exp(OneThread(), classes, x + t * classes, 1.0);
    }
  }

  // forward[t, state]: of the ways that are in that state after frame t.
  STEELYARD_HOST_DEVICE void go_forward(const T* x, const std::int64_t* target, std::int64_t last,
                                        std::int64_t states, const double* log_sums,
                                        double* forward) const {
    for (std::int64_t t = 0; t < last; ++t) {
      const double* before = forward + (t - 1) * states;
      for (std::int64_t s = 0; s < states; ++s) {
        double ways = kNever;
        if (t == 0) {
          ways = s < 2 ? 0.0 : kNever;
        } else {
          ways = before[s];
          if (s >= 1) ways = log_add(ways, before[s - 1]);
          if (may_skip(target, s)) ways = log_add(ways, before[s - 2]);
        }
        const std::int64_t c = class_of(target, s);
        forward[t * states + s] = ways + (static_cast<double>(x[t * classes + c]) - log_sums[t]);
      }
    }
  }

  STEELYARD_HOST_DEVICE void go_backward(std::int64_t sample, const std::int64_t* target,
                                         std::int64_t last, std::int64_t states,
                                         double log_likelihood, double scale) const {
    const T* x = logits + sample * frames * classes;
    const double* log_sums = workspace + sample * workspace_size();
    const double* forward = log_sums + frames;
    double* backward = const_cast<double*>(forward) + frames * states;
    double* after = backward + states;
    double* chances = after + states;
    for (std::int64_t t = last - 1; t >= 0; --t) {
      const T* row = x + t * classes;
      for (std::int64_t c = 0; c < classes; ++c) chances[c] = 0;
      for (std::int64_t s = 0; s < states; ++s) {
        const std::int64_t c = class_of(target, s);
        double ways = kNever;
        if (t == last - 1) {
          ways = s + 2 >= states ? 0.0 : kNever;
        } else {
          ways = after[s];
          if (s + 1 < states) ways = log_add(ways, after[s + 1]);
          if (s + 2 < states && may_skip(target, s + 2)) ways = log_add(ways, after[s + 2]);
        }
        chances[c] += std::exp(forward[t * states + s] + ways - log_likelihood);
        backward[s] = ways + (static_cast<double>(row[c]) - log_sums[t]);
      }
      T* out = grad + (sample * frames + t) * classes;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double p = std::exp(static_cast<double>(row[c]) - log_sums[t]);
        out[c] = static_cast<T>((p - chances[c]) * scale);
      }
      double* free = after;
      after = backward;
      backward = free;
    }
  }
};

using LossKernels = JoinedKernels<
    ForFloats<SumOfRows, CrossEntropyRows, CosineRows, CtcRows, RankOfLabel, SquaredErrors>,
    MeanLossKernels<SquaredError>, MeanLossKernels<HuberError>, MeanLossKernels<BinaryCrossEntropy>,
    KernelList<SumLabelWeights>>;

}  // namespace steelyard::kernels
