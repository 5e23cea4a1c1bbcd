#include "steelyard/framework/train/loss.h"

#include <cmath>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/constant_outputs.h"
#include "steelyard/framework/train/training_words.h"

namespace steelyard {
namespace {

Variable class_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                    const LossPart& part) {
  return cross_entropy(outputs, targets, loss.label_smoothing,
                       {loss.class_weights, part.total_weight, part.rows});
}

Variable token_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                    const LossPart&) {
  return cross_entropy(outputs, targets.reshape({targets.size()}), loss.label_smoothing);
}

Variable text_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                   const LossPart&) {
  return ctc_loss(frames_of(outputs, loss.characters), targets,
                  {.zero_infinity = loss.zero_infinity});
}

// The mean over samples of the squared differences in units, or the divergence of class chances.
Variable fidelity_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                       const LossPart&) {
  const auto& [scales, logits, divergence] = loss.units;
  if (logits) {
    const std::int64_t classes = outputs.dim(-1);
    const Shape rows{outputs.value().size() / classes, classes};
    return distillation_loss(reshape(outputs, rows), targets.reshape(rows)) / divergence;
  }
  if (!scales.defined()) return mse_loss(outputs, targets);
  const Shape rows{outputs.dim(0), scales.size()};
  const Variable units(scales);
  return mse_loss(reshape(outputs, rows) * units,
                  multiply(Variable(targets.reshape(rows)), units).value());
}

double of_equal_chances(const Loss&, const Dataset& dataset) {
  return std::log(static_cast<double>(dataset.classes));
}

double of_equal_frames(const Loss& loss, const Dataset& dataset) {
  if (loss.frames < 1 || loss.characters < 2) return 0;
  const double found =
      ctc_of_constant_frames(dataset.targets.to(Device{}), loss.frames, loss.characters,
                             1 / static_cast<double>(loss.characters), loss.zero_infinity);
  return std::isfinite(found) ? found : 0;
}

double computed_of_zeros(const Loss& loss, const Dataset& dataset) {
  const NoGradGuard no_grad;
  const Variable zeros(Tensor::zeros(dataset.targets.shape()));
  return compute_loss(loss, zeros, dataset.targets).value().item();
}

// In the order of Loss::Type.
const std::vector<LossInfo>& losses() {
  using Type = Loss::Type;
  static const std::vector<LossInfo> kLosses{
      {.targets = TargetKind::kClass,
       .compute = class_loss,
       .of_zero_outputs = of_equal_chances,
       .type = Type::kCrossEntropy},
      {.targets = TargetKind::kValues,
       .compute = [](const Loss&, const Variable& outputs, const Tensor& targets,
                     const LossPart&) { return mse_loss(outputs, targets); },
       .type = Type::kMeanSquaredError},
      {.targets = TargetKind::kValues,
       .compute = [](const Loss& loss, const Variable& outputs, const Tensor& targets,
                     const LossPart&) { return huber_loss(outputs, targets, loss.huber_delta); },
       .type = Type::kHuber},
      {.targets = TargetKind::kMarks,
       .compute =
           [](const Loss& loss, const Variable& outputs, const Tensor& targets, const LossPart&) {
             return binary_cross_entropy(outputs, targets, loss.positive_weights);
           },
       .type = Type::kBinaryCrossEntropy},
      {.targets = TargetKind::kValues,
       .compute = [](const Loss&, const Variable& outputs, const Tensor& targets,
                     const LossPart&) { return cosine_loss(outputs, targets); },
       .type = Type::kCosine},
      {.targets = TargetKind::kText,
       .compute = text_loss,
       .of_zero_outputs = of_equal_frames,
       .type = Type::kCtc},
      {.targets = TargetKind::kValues,
       .compute = fidelity_loss,
       .of_zero_outputs = [](const Loss&, const Dataset&) { return 1.0; },
       .type = Type::kFidelity},
      {.targets = TargetKind::kTokens,
       .compute = token_loss,
       .of_zero_outputs = of_equal_chances,
       .type = Type::kTokenCrossEntropy},
  };
  return kLosses;
}

struct KindWords {
  const char* needed;
  const char* found;
};

KindWords words_for(TargetKind kind) {
  switch (kind) {
    case TargetKind::kClass:
      return {"class labels", "class labels"};
    case TargetKind::kValues:
      return {"float targets", "floats"};
    case TargetKind::kMarks:
      return {"a mark for each class", "marks of several classes"};
    case TargetKind::kText:
      return {"texts", "texts"};
    case TargetKind::kTokens:
      return {"a token at each position",
              "a token at each position (train.loss: token_cross_entropy)"};
  }
  throw std::logic_error("[loss] unknown kind of targets");
}

// What compute_loss() can tell without the dataset.
void require_dtype(const Loss& loss, const Tensor& targets) {
  const TargetKind kind = loss_info(loss).targets;
  const bool numbers =
      kind == TargetKind::kClass || kind == TargetKind::kText || kind == TargetKind::kTokens;
  const bool mixed = kind == TargetKind::kClass && targets.rank() == 2;  // probabilities
  if (mixed || numbers == (targets.dtype() == DType::kI64)) return;
  throw InputError("the loss " + loss_name(loss) + " needs " + words_for(kind).needed +
                   (numbers ? ", the dataset has floats"
                            : ", the dataset has class labels (integers are labels, numbers "
                              "are floats)"));
}

}  // namespace

const LossInfo& loss_info(const Loss& loss) {
  if (loss.type != Loss::Type::kOwn) return losses().at(static_cast<std::size_t>(loss.type));
  if (!loss.own) throw std::invalid_argument("[loss] expected Loss::own of the type kOwn");
  return *loss.own;
}

std::string loss_name(const Loss& loss) {
  return loss.type == Loss::Type::kOwn ? loss_info(loss).name : word_of(loss.type);
}

void validate_loss(const Loss& loss, const Dataset& dataset) {
  const TargetKind needed = loss_info(loss).targets;
  const TargetKind found = target_kind(dataset.targets, dataset.classes);
  if (needed == found) return;
  throw InputError("the loss " + loss_name(loss) + " needs " + words_for(needed).needed +
                   ", the dataset has " + words_for(found).found);
}

Variable compute_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                      const LossPart& part) {
  ops::require_defined("loss", "outputs", outputs);
  ops::require_defined("loss", "targets", targets);
  require_dtype(loss, targets);
  const LossInfo& info = loss_info(loss);
  if (!info.compute) throw std::invalid_argument("[loss] " + loss_name(loss) + " has no function");
  Variable value = info.compute(loss, rows_of(loss, outputs), targets, part);
  if (!value.defined() || shape_size(value.shape()) != 1) {
    throw std::logic_error(
        "[loss] " + loss_name(loss) + ": expected one number, got " +
        (value.defined() ? shape_string(value.shape()) : "an undefined variable"));
  }
  if (value.dtype() != outputs.dtype()) {
    throw std::logic_error("[loss] " + loss_name(loss) + ": expected " +
                           std::string(dtype_name(outputs.dtype())) + " as of the outputs, got " +
                           std::string(dtype_name(value.dtype())));
  }
  return value;
}

Variable rows_of(const Loss& loss, const Variable& outputs) {
  ops::require_defined("loss", "outputs", outputs);
  const TargetKind kind = loss_info(loss).targets;
  const bool rows = kind == TargetKind::kClass || kind == TargetKind::kMarks;
  const Shape& shape = outputs.shape();
  if (kind == TargetKind::kTokens && shape.size() > 2) {
    return reshape(outputs, {outputs.value().size() / shape.back(), shape.back()});
  }
  if (!rows || shape.size() < 3) return outputs;
  return reshape(outputs, {shape[0], shape_size({shape.begin() + 1, shape.end()})});
}

double loss_of_zero_outputs(const Loss& loss, const Dataset& dataset) {
  const LossInfo& info = loss_info(loss);
  if (info.of_zero_outputs) return info.of_zero_outputs(loss, dataset);
  const bool alike = info.targets == TargetKind::kValues || info.targets == TargetKind::kMarks;
  return alike ? computed_of_zeros(loss, dataset) : 0;
}

Variable frames_of(const Variable& outputs, std::int64_t characters) {
  ops::require_defined("loss", "outputs", outputs);
  if (outputs.shape().size() == 3 && outputs.dim(2) == characters) return outputs;
  const std::int64_t values = outputs.shape().size() == 2 ? outputs.dim(1) : 0;
  if (characters < 1 || values < characters || values % characters != 0) {
    throw InputError("the loss ctc needs outputs of the " + std::to_string(characters) +
                     " characters (the blank included) in every frame, the model gives " +
                     shape_string(outputs.shape()));
  }
  return transpose(reshape(outputs, {outputs.dim(0), characters, values / characters}), 1, 2);
}

Loss plain_loss(Loss loss) {
  loss.label_smoothing = 0;
  loss.class_weights = {};
  loss.positive_weights = {};
  return loss;
}

Loss on_device(Loss loss, Device device) {
  for (Tensor* weights : {&loss.class_weights, &loss.positive_weights, &loss.units.scales}) {
    if (weights->defined()) *weights = weights->to(device);
  }
  return loss;
}

}  // namespace steelyard
