#include "steelyard/framework/train/training_loss.h"

#include "steelyard/framework/ops/losses/losses.h"

namespace steelyard {
namespace {

Tensor teacher_logits(Module& teacher, const Tensor& inputs) {
  const NoGradGuard no_grad;
  ForwardContext evaluation;
  return teacher.forward(Variable(inputs), evaluation).value();
}

}  // namespace

Variable training_loss(Module& model, const Loss& loss,
                       const std::optional<Distillation>& distillation, const Batch& batch,
                       ForwardContext& context, const LossPart& part) {
  Tensor teacher;
  if (distillation) teacher = teacher_logits(*distillation->teacher, batch.inputs);
  const Variable outputs = model(Variable(batch.inputs), context);
  const Variable task = compute_loss(loss, outputs, batch.targets, part);
  if (!distillation) return task;
  const Variable divergence = distillation_loss(
      rows_of(loss, outputs), rows_of(loss, Variable(teacher)).value(), distillation->temperature);
  return mix_losses(task, divergence, distillation->weight);
}

LossPart whole_batch(const Loss& loss, const Tensor& targets) {
  if (!loss.class_weights.defined() || targets.dtype() != DType::kI64) return {};
  return {.total_weight = sum_of_label_weights(targets, loss.class_weights)};
}

double training_loss_of_constant(double task, const std::optional<Distillation>& distillation) {
  if (!distillation) return task;
  // KL(teacher, equal chances) is at most ln(classes), the loss of the task.
  const double teacher = task * distillation->temperature * distillation->temperature;
  return (1 - distillation->weight) * task + distillation->weight * teacher;
}

}  // namespace steelyard
