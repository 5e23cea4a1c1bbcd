// The loss that a training step minimizes: the task's loss, with distillation combined with a
// teacher's.
#pragma once

#include <memory>
#include <optional>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/train/loss.h"

namespace steelyard {

// Knowledge distillation: the loss becomes (1 - weight) * task + weight * distillation_loss()
// (framework/ops/losses/losses.h) against what the teacher says about the same batch.
struct Distillation {
  std::shared_ptr<Module> teacher;  // gives logits of the trained model's shape
  double weight = 0.5;              // in [0, 1]
  double temperature = 1.0;         // above 0
};

// The recorded loss of one batch: the model runs in `context`, the teacher unrecorded in evaluation
// mode and before it, so that its activations are gone by then. `part` is the batch's share of a
// larger one. Of token_cross_entropy with many logits, by a model and a teacher whose heads are
// RowLayers, the logits of some tokens are there at a time: 64 MiB in float32 (loss_by_rows()).
Variable training_loss(Module& model, const Loss& loss,
                       const std::optional<Distillation>& distillation, const Batch& batch,
                       ForwardContext& context, const LossPart& part = {});

// The part that contains all rows of a batch; the weights of its labels are added up once.
LossPart whole_batch(const Loss& loss, const Tensor& targets);

// The training loss of outputs that are the same for every sample, of which `task` is the task's;
// an upper bound for the teacher's part.
double training_loss_of_constant(double task, const std::optional<Distillation>& distillation);

}  // namespace steelyard
