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

namespace {

// What is added over the batches: rows times their mean loss, and rows with the right class.
struct Totals {
  explicit Totals(Device device)
      : loss(Tensor::zeros(Shape{}, DType::kF64, device)),
        correct(Tensor::zeros(Shape{}, DType::kI64, device)) {}

  void add(Module& model, const Loss& by, const Batch& batch) const {
    ForwardContext context;
    const Variable outputs = model.forward(Variable(batch.inputs), context);
    add_weighted(compute_loss(by, outputs, batch.targets).value(),
                 static_cast<double>(batch.inputs.dim(0)), loss);
    if (by.type == Loss::Type::kCrossEntropy) add_correct(outputs.value(), batch.targets, correct);
  }

  Tensor loss;     // f64
  Tensor correct;  // i64
};

Metrics metrics_of(double loss, double correct, const Dataset& dataset, const Loss& by) {
  const auto size = static_cast<double>(dataset.size());
  Metrics metrics{.loss = loss / size};
  if (by.type == Loss::Type::kCrossEntropy) metrics.top1 = 100.0 * correct / size;
  return metrics;
}

LoaderOptions evaluation_options(const Normalization& normalization, std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.normalization = normalization;
  return options;
}

Loss without_smoothing(Loss loss) {
  loss.label_smoothing = 0;
  return loss;
}

}  // namespace

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size) {
  const NoGradGuard no_grad;
  DataLoader loader(dataset, evaluation_options(normalization, batch_size));
  const Device device = device_of(model);
  DeviceBatches batches(loader, device);
  batches.start(0);
  const Totals totals(device);
  const Loss plain = without_smoothing(loss);
  while (const auto batch = batches.next()) totals.add(model, plain, *batch);
  return metrics_of(totals.loss.item(), totals.correct.item(), dataset, loss);
}

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size, comm::Communicator& ranks) {
  if (ranks.size() == 1) return evaluate(model, dataset, normalization, loss, batch_size);
  const NoGradGuard no_grad;
  DataLoader loader(dataset, evaluation_options(normalization, batch_size));
  const Device device = device_of(model);
  const Loss plain = without_smoothing(loss);
  const std::int64_t batches = loader.batches_per_epoch();
  // The first rank, which writes checkpoints, always has a batch: a pass brings up to date what
  // modules derive from their parameters and checkpoints hold, such as learned scales.
  const auto first_of = [&](std::int64_t rank) {
    return (batches * rank + ranks.size() - 1) / ranks.size();
  };
  const std::int64_t end = first_of(ranks.rank() + 1);
  // Others' batches are 0 here: a sum in which one rank has a value is that value.
  const Tensor losses = Tensor::zeros({batches}, DType::kF64);
  std::vector<std::int64_t> correct{0};
  DeviceBatches own(loader, device);
  own.start(0, first_of(ranks.rank()));
  for (std::int64_t b = first_of(ranks.rank()); b < end; ++b) {
    const Totals totals(device);
    totals.add(model, plain, *own.next());
    losses.data<double>()[b] = totals.loss.item();
    correct[0] += static_cast<std::int64_t>(totals.correct.item());
  }
  ranks.sum({losses});
  ranks.sum(correct);
  double sum = 0;
  for (const double batch_loss : losses.span<double>()) sum += batch_loss;
  return metrics_of(sum, static_cast<double>(correct[0]), dataset, loss);
}

bool is_better(const Metrics& a, const Metrics& b) {
  return a.top1 && b.top1 ? *a.top1 > *b.top1 : a.loss < b.loss;
}

}  // namespace steelyard
