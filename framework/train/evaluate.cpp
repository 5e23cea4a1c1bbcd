#include "steelyard/framework/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/loss_by_rows.h"
#include "steelyard/framework/train/token_head.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
void add_weighted(const Tensor& value, double weight, const Tensor& sum) {
  ops::require_defined("add_weighted", "a value", value);
  ops::require_defined("add_weighted", "a sum", sum);
  visit_floating(value.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    run(sum.device(),
        kernels::AddWeighted<T>{.x = value.data<T>(), .weight = weight, .sum = sum.data<double>()});
  });
}

void add_correct(const Tensor& logits, const Tensor& labels, const Tensor& count) {
  ops::require_defined("count_correct", "logits", logits);
  ops::require_defined("count_correct", "labels", labels);
  visit_floating(logits.dtype(), "count_correct", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = logits.dim(0);
    run(logits.device(), kernels::AddCorrectRows<T>{.rows = rows,
                                                    .columns = rows == 0 ? 0 : logits.size() / rows,
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

namespace {

// What is added over the batches: rows times their mean loss, and rows with the right class.
struct Totals {
  explicit Totals(Device device)
      : loss(Tensor::zeros(Shape{}, DType::kF64, device)),
        correct(Tensor::zeros(Shape{}, DType::kI64, device)) {}

  void add(Module& model, const Loss& by, const Batch& batch, PredictionRecord& predictions) const {
    ForwardContext context;
    HeadedModel* const headed = token_model(model, by);
    if (headed == nullptr) {
      return add_part(by, model(Variable(batch.inputs), context), batch, 1, 0, predictions);
    }
    const Variable hidden = headed->body(Variable(batch.inputs), context);
    const Slot& head = *headed->head();
    const std::int64_t tokens = batch.targets.size();
    const std::int64_t at_once = tokens_at_once(head, hidden, tokens);
    if (at_once == tokens) return add_part(by, head(hidden, context), batch, 1, 0, predictions);
    const Tensor targets = batch.targets.reshape({tokens, 1});
    for (std::int64_t first = 0; first < tokens; first += at_once) {
      const std::int64_t count = std::min(at_once, tokens - first);
      const Variable rows(rows_within(hidden.value(), first, count));
      add_part(by, head(rows, context),
               {batch.inputs, rows_within(targets, first, count), batch.index},
               static_cast<double>(count) / static_cast<double>(tokens), first, predictions);
    }
  }

  Tensor loss;     // f64
  Tensor correct;  // i64

 private:
  // Outputs with their targets, this share of the batch's.
  void add_part(const Loss& by, const Variable& outputs, const Batch& part, double share,
                std::int64_t first_token, PredictionRecord& predictions) const {
    const Variable rows = rows_of(by, outputs);
    add_weighted(compute_loss(by, rows, part.targets).value(),
                 share * static_cast<double>(part.inputs.dim(0)), loss);
    if (loss_info(by).targets == TargetKind::kClass)
      add_correct(rows.value(), part.targets, correct);
    predictions.add(rows.value(), part, first_token);
  }
};

Evaluation evaluation_of(double loss, double correct, const Dataset& dataset, const Loss& by,
                         Predictions predictions) {
  const auto size = static_cast<double>(dataset.size());
  Evaluation evaluation{{.loss = loss / size}, std::move(predictions)};
  Metrics& metrics = evaluation.metrics;
  if (loss_info(by).targets == TargetKind::kClass) metrics.top1 = 100.0 * correct / size;
  metrics.more = compute_metrics(by, evaluation.predictions, dataset);
  return evaluation;
}

LoaderOptions evaluation_options(const Normalization& normalization, std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.normalization = normalization;
  return options;
}

Evaluation evaluate_alone(Module& model, const Dataset& dataset, const LoaderOptions& options,
                          const Loss& loss, comm::Communicator& ranks) {
  DataLoader loader(dataset, options);
  const Device device = device_of(model);
  DeviceBatches batches(loader, device);
  batches.start(0);
  const Totals totals(device);
  const Loss plain = on_device(plain_loss(loss), device);
  PredictionRecord record(plain, dataset, options.batch_size, device);
  while (const auto batch = batches.next()) totals.add(model, plain, *batch, record);
  return evaluation_of(totals.loss.item(), totals.correct.item(), dataset, loss,
                       record.finish(ranks));
}

// The batches of an evaluation, until `see` gives something.
template <typename See>
std::string first_seen(Module& model, const Dataset& dataset, const LoaderOptions& options,
                       const See& see) {
  const NoGradGuard no_grad;
  DataLoader loader(dataset, options);
  DeviceBatches batches(loader, device_of(model));
  batches.start(0);
  while (const auto batch = batches.next()) {
    if (std::string text = see(*batch); !text.empty()) return text;
  }
  return "";
}

void run_forward(Module& model, const Tensor& inputs) {
  ForwardContext context;
  model(Variable(inputs), context);
}

// What the model throws of an input that it has no value for; "" where it takes all.
std::string refusal_of(Module& model, const Tensor& inputs) {
  try {
    run_forward(model, inputs);
    return "";
  } catch (const std::out_of_range& error) {
    return error.what();
  }
}

}  // namespace

std::string first_non_finite(Module& model, const Dataset& dataset,
                             const Normalization& normalization, std::int64_t batch_size) {
  const auto see = [&](const Batch& batch) -> std::string {
    const auto output = first_non_finite_output([&] { run_forward(model, batch.inputs); });
    if (!output) return "";
    return "the output of " + output->module + ", for " +
           samples_of(dataset)->name(batch.index * batch_size + output->row);
  };
  return first_seen(model, dataset, evaluation_options(normalization, batch_size), see);
}

std::string first_refused(Module& model, const Dataset& dataset, const Normalization& normalization,
                          std::int64_t batch_size) {
  const auto see_one = [&](const Batch& batch) {
    const std::string refusal = refusal_of(model, batch.inputs);
    return refusal.empty() ? "" : samples_of(dataset)->name(batch.index) + ": " + refusal;
  };
  const auto see = [&](const Batch& batch) -> std::string {
    if (refusal_of(model, batch.inputs).empty()) return "";
    return first_seen(model, dataset, evaluation_options(normalization, 1), see_one);
  };
  return first_seen(model, dataset, evaluation_options(normalization, batch_size), see);
}

Tensor outputs_of(Module& model, const Dataset& dataset, const Normalization& normalization,
                  std::int64_t batch_size) {
  const NoGradGuard no_grad;
  DataLoader loader(dataset, evaluation_options(normalization, batch_size));
  DeviceBatches batches(loader, device_of(model));
  batches.start(0);
  Tensor all;
  while (const auto batch = batches.next()) {
    ForwardContext context;
    const Tensor part = model(Variable(batch->inputs), context).value().to(Device{});
    if (!all.defined()) {
      Shape shape = part.shape();
      shape[0] = dataset.size();
      all = Tensor::empty(shape);
    }
    std::copy_n(part.data<float>(), part.size(),
                all.data<float>() + batch->index * batch_size * (part.size() / part.dim(0)));
  }
  return all;
}

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size) {
  comm::Communicator alone;
  return evaluate(model, dataset, normalization, loss, batch_size, alone);
}

Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size, comm::Communicator& ranks) {
  return evaluate_predictions(model, dataset, normalization, loss, batch_size, ranks).metrics;
}

Evaluation evaluate_predictions(Module& model, const Dataset& dataset,
                                const Normalization& normalization, const Loss& loss,
                                std::int64_t batch_size, comm::Communicator& ranks) {
  const NoGradGuard no_grad;
  const LoaderOptions options = evaluation_options(normalization, batch_size);
  if (ranks.size() == 1) return evaluate_alone(model, dataset, options, loss, ranks);
  DataLoader loader(dataset, options);
  const Device device = device_of(model);
  const Loss plain = on_device(plain_loss(loss), device);
  PredictionRecord record(plain, dataset, batch_size, device);
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
    totals.add(model, plain, *own.next(), record);
    losses.data<double>()[b] = totals.loss.item();
    correct[0] += static_cast<std::int64_t>(totals.correct.item());
  }
  ranks.sum({losses});
  ranks.sum(correct);
  double sum = 0;
  for (const double batch_loss : losses.span<double>()) sum += batch_loss;
  return evaluation_of(sum, static_cast<double>(correct[0]), dataset, loss, record.finish(ranks));
}

}  // namespace steelyard
