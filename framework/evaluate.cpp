#include "steelyard/framework/evaluate.h"

#include <cmath>
#include <stdexcept>

#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/on_device.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/training_words.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
void add_weighted(const Tensor& value, double weight, const Tensor& sum) {
  visit_floating(value.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    run(sum.device(),
        kernels::AddWeighted<T>{.x = value.data<T>(), .weight = weight, .sum = sum.data<double>()});
  });
}

void add_correct(const Tensor& logits, const Tensor& labels, const Tensor& count) {
  visit_floating(logits.dtype(), "count_correct", [&](auto zero) {
    using T = decltype(zero);
    run(logits.device(), kernels::AddCorrectRows<T>{.rows = logits.dim(0),
                                                    .classes = logits.dim(1),
                                                    .logits = logits.data<T>(),
                                                    .labels = labels.data<std::int64_t>(),
                                                    .correct = count.data<std::int64_t>()});
  });
}

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const Tensor count = Tensor::zeros(Shape{}, DType::kI64, logits.device());
  add_correct(logits, labels, count);
  return *count.to(Device{}).data<std::int64_t>();
}

void validate_loss(const Loss& loss, const Tensor& targets) {
  const bool classes = targets.dtype() == DType::kI64;
  if (classes != (loss.type == Loss::Type::kCrossEntropy)) {
    throw InputError("the loss " + word_of(loss.type) +
                     (classes ? " needs float targets, the dataset has class labels"
                              : " needs class labels, the dataset has floats"));
  }
}

Variable compute_loss(const Loss& loss, const Variable& outputs, const Tensor& targets) {
  validate_loss(loss, targets);
  switch (loss.type) {
    case Loss::Type::kCrossEntropy:
      return cross_entropy(outputs, targets, loss.label_smoothing);
    case Loss::Type::kMeanSquaredError:
      return mse_loss(outputs, targets);
    case Loss::Type::kHuber:
      return huber_loss(outputs, targets, loss.huber_delta);
  }
  throw std::logic_error("[loss] unknown type");
}

double loss_of_zero_outputs(const Loss& loss, const Dataset& dataset) {
  if (loss.type == Loss::Type::kCrossEntropy) return std::log(static_cast<double>(dataset.classes));
  const NoGradGuard no_grad;
  const Variable zeros(Tensor::zeros(dataset.targets.shape()));
  return compute_loss(loss, zeros, dataset.targets).value().item();
}

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size) {
  const NoGradGuard no_grad;
  LoaderOptions options;
  options.batch_size = batch_size;
  options.normalization = normalization;
  DataLoader loader(dataset, options);
  Loss plain = loss;
  plain.label_smoothing = 0;
  ForwardContext context;
  const Device device = device_of(model);
  DeviceBatches batches(loader, device);
  batches.start(0);
  const Tensor loss_sum = Tensor::zeros(Shape{}, DType::kF64, device);
  const Tensor correct = Tensor::zeros(Shape{}, DType::kI64, device);
  while (const auto batch = batches.next()) {
    const Tensor& targets = batch->targets;
    const Variable outputs = model.forward(Variable(batch->inputs), context);
    const auto rows = static_cast<double>(batch->inputs.dim(0));
    add_weighted(compute_loss(plain, outputs, targets).value(), rows, loss_sum);
    if (loss.type == Loss::Type::kCrossEntropy) add_correct(outputs.value(), targets, correct);
  }
  const auto size = static_cast<double>(dataset.size());
  Metrics metrics{.loss = loss_sum.item() / size};
  if (loss.type == Loss::Type::kCrossEntropy) metrics.top1 = 100.0 * correct.item() / size;
  return metrics;
}

bool is_better(const Metrics& a, const Metrics& b) {
  return a.top1 && b.top1 ? *a.top1 > *b.top1 : a.loss < b.loss;
}

}  // namespace steelyard
