#include "steelyard/framework/ops/losses/losses.h"

#include <algorithm>

#include "steelyard/framework/ops/losses/loss_support.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/losses/losses.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
namespace {

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  visit_floating(x.dtype(), "mix_losses", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Scale<T>{
            .n = x.size(), .x = x.data<T>(), .factor = static_cast<T>(factor), .y = y.data<T>()});
  });
  return y;
}

class MixFunction : public Function {
 public:
  explicit MixFunction(double weight) : weight_(weight) {}

  std::string name() const override { return "mix_losses"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(2);
    for (std::size_t i = 0; i < 2; ++i) {
      const double factor = i == 0 ? 1 - weight_ : weight_;
      if (needs_grad(i)) grads[i] = scaled(grad_output, factor);
    }
    return grads;
  }

 private:
  double weight_;
};

void require_logits(const char* name, const Variable& logits) {
  ops::require_defined(name, "logits", logits);
  if (logits.shape().size() != 2 || logits.dim(0) < 1 || logits.dim(1) < 1) {
    ops::fail(name, "logits [N, C], neither empty", shape_string(logits.shape()));
  }
}

// On the host; a GPU would have to be waited for. NaN passes, and makes the loss NaN.
void require_probabilities(const char* name, const Tensor& targets) {
  if (targets.device().kind != Device::Kind::kCpu) return;
  constexpr double kRounding = 1e-5;
  visit_floating(targets.dtype(), name, [&](auto zero) {
    const auto values = targets.span<decltype(zero)>();
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](auto v) { return v < -kRounding || v > 1 + kRounding; });
    if (bad == values.end()) return;
    ops::fail(name, "target probabilities in [0, 1]",
              ops::number_text(static_cast<double>(*bad)) + " at index " +
                  std::to_string(bad - values.begin()));
  });
}

// Whether the targets are probabilities; else they are labels.
bool require_targets(const Variable& logits, const Tensor& targets) {
  require_logits("cross_entropy", logits);
  ops::require_defined("cross_entropy", "targets", targets);
  if (targets.dtype() == logits.dtype() && targets.shape() == logits.shape()) {
    require_probabilities("cross_entropy", targets);
    return true;
  }
  if (targets.dtype() != DType::kI64 || targets.shape() != Shape{logits.dim(0)}) {
    ops::fail("cross_entropy", "i64 targets [" + std::to_string(logits.dim(0)) + "]",
              std::string(dtype_name(targets.dtype())) + " " + shape_string(targets.shape()));
  }
  if (targets.device().kind != Device::Kind::kCpu) return false;  // the kernel marks them
  const std::int64_t* target = targets.data<std::int64_t>();
  for (std::int64_t i = 0; i < targets.size(); ++i) {
    if (target[i] < 0 || target[i] >= logits.dim(1)) {
      throw std::out_of_range("[cross_entropy] expected targets in [0, " +
                              std::to_string(logits.dim(1)) + "), got " +
                              std::to_string(target[i]) + " at index " + std::to_string(i));
    }
  }
  return false;
}

void require_class_weights(const Variable& logits, const ClassWeights& weights) {
  const Tensor& w = weights.of_classes;
  if (!w.defined() || (w.dtype() == DType::kF64 && w.shape() == Shape{logits.dim(1)})) return;
  ops::fail("cross_entropy", "class weights f64 [" + std::to_string(logits.dim(1)) + "]",
            std::string(dtype_name(w.dtype())) + " " + shape_string(w.shape()));
}

// A mean over rows of losses f64 [rows], divided by `total` instead where it is defined.
template <typename T>
void write_sum(const Tensor& losses, const Tensor& total, double factor, T* to) {
  run(losses.device(),
      kernels::SumOfRows<T>{.n = losses.size(),
                            .values = losses.data<double>(),
                            .total = total.defined() ? total.data<double>() : nullptr,
                            .factor = factor,
                            .result = to});
}

template <typename T>
void weighted_cross_entropy(const Tensor& logits, const Tensor& targets, double label_smoothing,
                            const ClassWeights& weights, T* loss, T* grad_logits) {
  const std::int64_t rows = logits.dim(0);
  const bool soft = targets.dtype() != DType::kI64;
  // The mean is over rows for probabilities, over their weights for weighted labels.
  Tensor total;
  double factor = 1.0 / static_cast<double>(rows);
  if (!soft) {
    total =
        weights.total.defined() ? weights.total : sum_of_label_weights(targets, weights.of_classes);
    factor = weights.factor;
  }
  const Tensor losses = Tensor::empty({rows}, DType::kF64, logits.device());
  run(logits.device(),
      kernels::CrossEntropyRows<T>{.rows = rows,
                                   .columns = logits.dim(1),
                                   .logits = logits.data<T>(),
                                   .labels = soft ? nullptr : targets.data<std::int64_t>(),
                                   .targets = soft ? targets.data<T>() : nullptr,
                                   .class_weights = weights.of_classes.defined()
                                                        ? weights.of_classes.data<double>()
                                                        : nullptr,
                                   .label_smoothing = label_smoothing,
                                   .total = total.defined() ? total.data<double>() : nullptr,
                                   .factor = factor,
                                   .losses = losses.data<double>(),
                                   .grad = grad_logits});
  write_sum(losses, total, factor, loss);
}

// compute(loss, grad_x or null) writes the mean over all elements.
template <typename F>
Variable regression_loss(const char* name, const Variable& x, const Tensor& target,
                         const F& compute) {
  ops::require_defined(name, "an input", x);
  ops::require_defined(name, "a target", target);
  if (target.shape() != x.shape() || target.dtype() != x.dtype() || target.size() < 1) {
    ops::fail(name,
              "a target " + std::string(dtype_name(x.dtype())) + " " + shape_string(x.shape()) +
                  ", not empty",
              std::string(dtype_name(target.dtype())) + " " + shape_string(target.shape()));
  }
  const Tensor grad = ops::gradient_buffer(x);
  Tensor loss = Tensor::empty(Shape{}, x.dtype(), x.value().device());
  visit_floating(x.dtype(), name, [&](auto zero) {
    using T = decltype(zero);
    compute(loss.data<T>(), grad.defined() ? grad.data<T>() : nullptr);
  });
  if (!grad.defined()) return Variable(loss);
  return record(loss, std::make_shared<ops::LossFunction>(name, grad), {x});
}

template <class Loss>
Variable mean_loss(const char* name, const Variable& x, const Tensor& target,
                   const Loss& of_element) {
  return regression_loss(name, x, target, [&]<typename T>(T* loss, T* grad) {
    const std::int64_t n = target.size();
    const T *a = x.value().data<T>(), *b = target.data<T>();
    run(target.device(),
        kernels::MeanLoss<T, Loss>{.n = n, .a = a, .b = b, .loss = of_element, .mean = loss});
    if (grad == nullptr) return;
    run(target.device(), kernels::MeanLossBackward<T, Loss>{
                             .n = n, .a = a, .b = b, .loss = of_element, .grad_a = grad});
  });
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets, double label_smoothing,
                       const ClassWeights& weights) {
  const bool soft = require_targets(logits, targets);
  if (!(label_smoothing >= 0.0 && label_smoothing < 1.0)) {
    ops::fail("cross_entropy", "label_smoothing in [0, 1)", ops::number_text(label_smoothing));
  }
  require_class_weights(logits, weights);
  const Tensor grad = ops::gradient_buffer(logits);
  Tensor loss = Tensor::empty(Shape{}, logits.dtype(), logits.value().device());
  visit_floating(logits.dtype(), "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    T* grad_logits = grad.defined() ? grad.data<T>() : nullptr;
    if (soft || weights.of_classes.defined()) {
      weighted_cross_entropy<T>(logits.value(), targets, label_smoothing, weights, loss.data<T>(),
                                grad_logits);
      return;
    }
    run(loss.device(), kernels::SoftmaxCrossEntropy<T>{.rows = logits.dim(0),
                                                       .columns = logits.dim(1),
                                                       .logits = logits.value().data<T>(),
                                                       .labels = targets.data<std::int64_t>(),
                                                       .label_smoothing = label_smoothing,
                                                       .loss = loss.data<T>(),
                                                       .grad_logits = grad_logits});
  });
  if (!grad.defined()) return Variable(loss);
  return record(loss, std::make_shared<ops::LossFunction>("cross_entropy", grad), {logits});
}

Tensor sum_of_label_weights(const Tensor& labels, const Tensor& class_weights) {
  ops::require_defined("sum_of_label_weights", "labels", labels);
  ops::require_defined("sum_of_label_weights", "class weights", class_weights);
  Tensor total = Tensor::empty(Shape{}, DType::kF64, labels.device());
  run(total.device(), kernels::SumLabelWeights{.n = labels.size(),
                                               .classes = class_weights.size(),
                                               .labels = labels.data<std::int64_t>(),
                                               .class_weights = class_weights.data<double>(),
                                               .total = total.data<double>()});
  return total;
}

Variable distillation_loss(const Variable& logits, const Tensor& teacher, double temperature) {
  constexpr const char* kName = "distillation_loss";
  require_logits(kName, logits);
  ops::require_defined(kName, "a teacher's logits", teacher);
  if (teacher.shape() != logits.shape() || teacher.dtype() != logits.dtype()) {
    ops::fail(kName,
              "a teacher's logits " + std::string(dtype_name(logits.dtype())) + " " +
                  shape_string(logits.shape()),
              std::string(dtype_name(teacher.dtype())) + " " + shape_string(teacher.shape()));
  }
  if (!(temperature > 0.0)) {
    ops::fail(kName, "a temperature above 0", ops::number_text(temperature));
  }
  const Tensor grad = ops::gradient_buffer(logits);
  Tensor loss = Tensor::empty(Shape{}, logits.dtype(), logits.value().device());
  visit_floating(logits.dtype(), kName, [&](auto zero) {
    using T = decltype(zero);
    run(loss.device(),
        kernels::SoftmaxDivergence<T>{.rows = logits.dim(0),
                                      .columns = logits.dim(1),
                                      .logits = logits.value().data<T>(),
                                      .teacher = teacher.data<T>(),
                                      .temperature = temperature,
                                      .loss = loss.data<T>(),
                                      .grad_logits = grad.defined() ? grad.data<T>() : nullptr});
  });
  if (!grad.defined()) return Variable(loss);
  return record(loss, std::make_shared<ops::LossFunction>(kName, grad), {logits});
}

Variable mix_losses(const Variable& a, const Variable& b, double weight) {
  for (const Variable& loss : {a, b}) {
    ops::require_defined("mix_losses", "two losses", loss);
    if (!loss.shape().empty()) {
      ops::fail("mix_losses", "two numbers of rank 0", shape_string(loss.shape()));
    }
  }
  ops::require_same_dtype("mix_losses", "second loss", a, b);
  if (!(weight >= 0.0 && weight <= 1.0)) {
    ops::fail("mix_losses", "weight in [0, 1]", ops::number_text(weight));
  }
  Tensor y = Tensor::empty(Shape{}, a.dtype(), a.value().device());
  visit_floating(a.dtype(), "mix_losses", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Mix<T>{.n = 1,
                                    .weight = weight,
                                    .a = a.value().data<T>(),
                                    .b = b.value().data<T>(),
                                    .y = y.data<T>()});
  });
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<MixFunction>(weight), {a, b});
}

Variable mse_loss(const Variable& x, const Tensor& target) {
  return mean_loss("mse_loss", x, target, kernels::SquaredError());
}

Variable huber_loss(const Variable& x, const Tensor& target, double delta) {
  if (!(delta > 0)) ops::fail("huber_loss", "delta above 0", ops::number_text(delta));
  return mean_loss("huber_loss", x, target, kernels::HuberError{delta});
}

Variable binary_cross_entropy(const Variable& logits, const Tensor& targets,
                              const Tensor& positive_weights) {
  constexpr const char* kName = "binary_cross_entropy";
  ops::require_defined(kName, "logits", logits);
  const std::int64_t columns = logits.shape().empty() ? 1 : logits.shape().back();
  const Tensor& w = positive_weights;
  if (w.defined() &&
      (w.dtype() != DType::kF64 || w.rank() != 1 || (w.size() != 1 && w.size() != columns))) {
    ops::fail(kName, "positive weights f64 [1] or [" + std::to_string(columns) + "]",
              std::string(dtype_name(w.dtype())) + " " + shape_string(w.shape()));
  }
  if (targets.defined() && targets.dtype() == logits.dtype()) require_probabilities(kName, targets);
  const kernels::BinaryCrossEntropy loss{w.defined() ? w.size() : 0,
                                         w.defined() ? w.data<double>() : nullptr};
  return mean_loss(kName, logits, targets, loss);
}

Variable cosine_loss(const Variable& x, const Tensor& target) {
  if (x.defined() && x.shape().size() != 2) {
    ops::fail("cosine_loss", "an input [N, D]", shape_string(x.shape()));
  }
  return regression_loss("cosine_loss", x, target, [&]<typename T>(T* loss, T* grad) {
    const std::int64_t rows = target.dim(0);
    const double factor = 1.0 / static_cast<double>(rows);
    const Tensor losses = Tensor::empty({rows}, DType::kF64, target.device());
    run(target.device(), kernels::CosineRows<T>{.rows = rows,
                                                .columns = target.dim(1),
                                                .x = x.value().data<T>(),
                                                .y = target.data<T>(),
                                                .factor = factor,
                                                .losses = losses.data<double>(),
                                                .grad_x = grad});
    write_sum(losses, Tensor(), factor, loss);
  });
}

}  // namespace steelyard
