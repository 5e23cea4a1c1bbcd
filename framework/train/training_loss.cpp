#include "steelyard/framework/train/training_loss.h"

#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/train/loss_by_rows.h"
#include "steelyard/framework/train/token_head.h"

namespace steelyard {
namespace {

Variable loss_of(const Loss& loss, const std::optional<Distillation>& distillation,
                 const Variable& outputs, const Tensor& teacher, const Tensor& targets,
                 const LossPart& part) {
  // What counts for nothing needs no gradient.
  const bool by_teacher_alone = distillation && distillation->weight == 1;
  const Variable compared = by_teacher_alone ? Variable(outputs.value()) : outputs;
  const Variable task = compute_loss(loss, compared, targets, part);
  if (!distillation) return task;
  const Variable divergence = distillation_loss(
      rows_of(loss, outputs), rows_of(loss, Variable(teacher)).value(), distillation->temperature);
  return mix_losses(task, divergence, distillation->weight);
}

// As training_loss(), with the logits of some tokens at a time where all of them are many.
Variable token_training_loss(Module& model, HeadedModel& headed, HeadedModel* teacher,
                             const Loss& loss, const std::optional<Distillation>& distillation,
                             const Batch& batch, ForwardContext& context, const LossPart& part) {
  ForwardContext evaluation;
  Tensor taught;
  if (teacher != nullptr) {
    const NoGradGuard no_grad;
    taught = teacher->body(Variable(batch.inputs), evaluation).value();
  }
  const auto teach = [&](const Tensor& rows) {
    const NoGradGuard no_grad;
    return teacher == nullptr ? Tensor() : (*teacher->head())(Variable(rows), evaluation).value();
  };
  const Variable hidden = headed.body(Variable(batch.inputs), context);
  const Slot& head = *headed.head();
  const std::int64_t tokens = batch.targets.size();
  const std::int64_t at_once = tokens_at_once(head, hidden, tokens);
  if (at_once == tokens) {
    return loss_of(loss, distillation, head(hidden, context), teach(taught), batch.targets, part);
  }
  std::vector<Variable> parameters;
  for (const NamedParameter& p : distinct(model.named_parameters())) {
    parameters.push_back(p.variable);
  }
  const Tensor targets = batch.targets.reshape({tokens, 1});
  return loss_by_rows(hidden, at_once, parameters, [&](const Variable& rows, std::int64_t first) {
    const std::int64_t count = rows.dim(0);
    const Tensor of_teacher =
        teacher == nullptr ? Tensor() : teach(rows_within(taught, first, count));
    return loss_of(loss, distillation, head(rows, context), of_teacher,
                   rows_within(targets, first, count), part);
  });
}

Tensor teacher_logits(Module& teacher, const Tensor& inputs) {
  const NoGradGuard no_grad;
  ForwardContext evaluation;
  return teacher.forward(Variable(inputs), evaluation).value();
}

}  // namespace

Variable training_loss(Module& model, const Loss& loss,
                       const std::optional<Distillation>& distillation, const Batch& batch,
                       ForwardContext& context, const LossPart& part) {
  HeadedModel* const headed = token_model(model, loss);
  HeadedModel* const teacher = distillation ? token_model(*distillation->teacher, loss) : nullptr;
  if (headed != nullptr && (!distillation || teacher != nullptr)) {
    return token_training_loss(model, *headed, teacher, loss, distillation, batch, context, part);
  }
  Tensor taught;
  if (distillation) taught = teacher_logits(*distillation->teacher, batch.inputs);
  return loss_of(loss, distillation, model(Variable(batch.inputs), context), taught, batch.targets,
                 part);
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
