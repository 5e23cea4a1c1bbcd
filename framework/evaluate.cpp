#include "framework/evaluate.h"

#include <stdexcept>
#include <vector>

#include "framework/error.h"
#include "framework/ops/losses.h"
#include "kernels/softmax.h"

namespace steelyard {
std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  std::vector<std::int64_t> predictions(static_cast<std::size_t>(logits.dim(0)));
  kernels::argmax_rows(logits.dim(0), logits.dim(1), logits.data<float>(), predictions.data());
  std::int64_t correct = 0;
  const std::int64_t* expected = labels.data<std::int64_t>();
  for (std::size_t i = 0; i < predictions.size(); ++i) correct += predictions[i] == expected[i];
  return correct;
}

const char* loss_name(Loss::Type type) {
  switch (type) {
    case Loss::Type::kCrossEntropy:
      return "cross_entropy";
    case Loss::Type::kMeanSquaredError:
      return "mse";
    case Loss::Type::kHuber:
      return "huber";
  }
  return "unknown";
}

void validate_loss(const Loss& loss, const Tensor& targets) {
  const bool classes = targets.dtype() == DType::kI64;
  if (classes != (loss.type == Loss::Type::kCrossEntropy)) {
    throw InputError(std::string("the loss ") + loss_name(loss.type) +
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

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size) {
  const NoGradGuard no_grad;
  LoaderOptions options;
  options.batch_size = batch_size;
  options.normalization = normalization;
  DataLoader loader(dataset, options);
  loader.start(0);
  Loss plain = loss;
  plain.label_smoothing = 0;
  ForwardContext context;
  double loss_sum = 0;
  std::int64_t correct = 0;
  while (const auto batch = loader.next()) {
    const Variable outputs = model.forward(Variable(batch->inputs), context);
    const auto rows = static_cast<double>(batch->inputs.dim(0));
    loss_sum += compute_loss(plain, outputs, batch->targets).value().item() * rows;
    if (loss.type == Loss::Type::kCrossEntropy) {
      correct += count_correct(outputs.value(), batch->targets);
    }
  }
  const auto size = static_cast<double>(dataset.size());
  Metrics metrics{.loss = loss_sum / size};
  if (loss.type == Loss::Type::kCrossEntropy) {
    metrics.top1 = 100.0 * static_cast<double>(correct) / size;
  }
  return metrics;
}

bool is_better(const Metrics& a, const Metrics& b) {
  return a.top1 && b.top1 ? *a.top1 > *b.top1 : a.loss < b.loss;
}

}  // namespace steelyard
