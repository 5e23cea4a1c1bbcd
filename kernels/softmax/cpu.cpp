#include "steelyard/kernels/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/softmax/formulas.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 2048;  // logits per thread that pay for waking it

std::int64_t row_grain(std::int64_t classes) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, classes));
}

// -sum_c target[c] * log softmax(row)[c], with the gradient times `grad_scale` if grad is not null.
template <typename T>
double row_loss(std::int64_t classes, const T* row, std::int64_t label, double smoothing,
                double grad_scale, T* grad) {
  const T largest = *std::max_element(row, row + classes);
  double sum = 0, shifted = 0;  // of exp(row - largest), of row - largest
  for (std::int64_t c = 0; c < classes; ++c) {
    const T d = row[c] - largest;
    const T e = std::exp(d);
    sum += double(e);
    shifted += double(d);
    if (grad != nullptr) grad[c] = e;
  }
  const SmoothedTarget target(classes, label, smoothing);
  if (grad != nullptr) {
    for (std::int64_t c = 0; c < classes; ++c) {
      grad[c] = T((double(grad[c]) / sum - target.at(c)) * grad_scale);
    }
  }
  return target.loss(sum, double(row[label]) - double(largest), shifted);
}

// log(sum_c exp(row[c] / temperature)).
template <typename T>
double log_sum_exp(std::int64_t classes, const T* row, double temperature) {
  const double largest = double(*std::max_element(row, row + classes)) / temperature;
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c)
    sum += std::exp(double(row[c]) / temperature - largest);
  return largest + std::log(sum);
}

// KL(softmax(teacher / temperature) || softmax(row / temperature)), with softmax(row / temperature)
// - softmax(teacher / temperature) times `grad_scale` if grad is not null.
template <typename T>
double row_divergence(std::int64_t classes, const T* row, const T* teacher, double temperature,
                      double grad_scale, T* grad) {
  const double row_sum = log_sum_exp(classes, row, temperature);
  const double teacher_sum = log_sum_exp(classes, teacher, temperature);
  double divergence = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const Divergence at(double(teacher[c]) / temperature - teacher_sum,
                        double(row[c]) / temperature - row_sum);
    divergence += at.term;
    if (grad != nullptr) grad[c] = T(at.slope() * grad_scale);
  }
  return divergence;
}

// The mean over rows of row_value(row), in an order that does not depend on the thread count.
template <typename F>
double mean_over_rows(std::int64_t rows, std::int64_t classes, const F& row_value) {
  std::vector<double> values(rows);
  parallel_for(rows, row_grain(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) values[r] = row_value(r);
  });
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / double(rows);
}

}  // namespace

template <typename T>
void compute(const SoftmaxCrossEntropy<T>& k) {
  *k.loss = T(mean_over_rows(k.rows, k.classes, [&](std::int64_t r) {
    T* grad = k.grad_logits == nullptr ? nullptr : k.grad_logits + r * k.classes;
    return row_loss(k.classes, k.logits + r * k.classes, k.labels[r], k.label_smoothing,
                    1.0 / double(k.rows), grad);
  }));
}

template <typename T>
void compute(const SoftmaxDivergence<T>& k) {
  const double mean = mean_over_rows(k.rows, k.classes, [&](std::int64_t r) {
    T* grad = k.grad_logits == nullptr ? nullptr : k.grad_logits + r * k.classes;
    return row_divergence(k.classes, k.logits + r * k.classes, k.teacher + r * k.classes,
                          k.temperature, k.temperature / double(k.rows), grad);
  });
  *k.loss = T(mean * k.temperature * k.temperature);
}

template <typename T>
void compute(const ArgmaxRows<T>& k) {
  parallel_for(k.rows, row_grain(k.classes), [k](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = k.logits + r * k.classes;
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < k.classes; ++c) {
        if (is_larger(row[c], row[best])) best = c;
      }
      k.predictions[r] = best;
    }
  });
}

template <typename T>
void compute(const AddCorrectRows<T>& k) {
  std::vector<std::int64_t> predictions(k.rows);
  compute(ArgmaxRows<T>{k.rows, k.classes, k.logits, predictions.data()});
  for (std::int64_t r = 0; r < k.rows; ++r) *k.correct += predictions[r] == k.labels[r] ? 1 : 0;
}

template struct CpuKernels<SoftmaxKernels>;

}  // namespace steelyard::kernels
