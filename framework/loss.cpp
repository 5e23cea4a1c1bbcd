#include "steelyard/framework/loss.h"

#include <array>
#include <cmath>
#include <stdexcept>

#include "steelyard/framework/error.h"
#include "steelyard/framework/ops/ctc_loss.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/ops/permute.h"
#include "steelyard/framework/training_words.h"

namespace steelyard {
namespace {

Variable class_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                    const LossPart& part) {
  return cross_entropy(outputs, targets, loss.label_smoothing,
                       {loss.class_weights, part.total_weight, part.rows});
}

Variable text_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                   const LossPart&) {
  return ctc_loss(frames_of(outputs, loss.characters), targets,
                  {.zero_infinity = loss.zero_infinity});
}

double of_equal_chances(const Loss&, const Dataset& dataset) {
  return std::log(static_cast<double>(dataset.classes));
}

double computed_of_zeros(const Loss& loss, const Dataset& dataset) {
  const NoGradGuard no_grad;
  const Variable zeros(Tensor::zeros(dataset.targets.shape()));
  return compute_loss(loss, zeros, dataset.targets).value().item();
}

double unknown_of_zeros(const Loss&, const Dataset&) { return 0; }

// In the order of Loss::Type.
constexpr std::array kLosses{
    LossInfo{Loss::Type::kCrossEntropy, TargetKind::kClass, class_loss, of_equal_chances},
    LossInfo{Loss::Type::kMeanSquaredError, TargetKind::kValues,
             [](const Loss&, const Variable& outputs, const Tensor& targets, const LossPart&) {
               return mse_loss(outputs, targets);
             },
             computed_of_zeros},
    LossInfo{Loss::Type::kHuber, TargetKind::kValues,
             [](const Loss& loss, const Variable& outputs, const Tensor& targets, const LossPart&) {
               return huber_loss(outputs, targets, loss.huber_delta);
             },
             computed_of_zeros},
    LossInfo{Loss::Type::kBinaryCrossEntropy, TargetKind::kMarks,
             [](const Loss& loss, const Variable& outputs, const Tensor& targets, const LossPart&) {
               return binary_cross_entropy(outputs, targets, loss.positive_weights);
             },
             computed_of_zeros},
    LossInfo{Loss::Type::kCosine, TargetKind::kValues,
             [](const Loss&, const Variable& outputs, const Tensor& targets, const LossPart&) {
               return cosine_loss(outputs, targets);
             },
             computed_of_zeros},
    LossInfo{Loss::Type::kCtc, TargetKind::kText, text_loss, unknown_of_zeros},
};
static_assert(kLosses.back().type == Loss::Type::kCtc &&
              kLosses.size() == static_cast<std::size_t>(Loss::Type::kCtc) + 1);

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
  }
  throw std::logic_error("[loss] unknown kind of targets");
}

// What compute_loss() can tell without the dataset.
void require_dtype(const Loss& loss, const Tensor& targets) {
  const TargetKind kind = loss_info(loss.type).targets;
  const bool numbers = kind == TargetKind::kClass || kind == TargetKind::kText;
  const bool mixed = kind == TargetKind::kClass && targets.rank() == 2;  // probabilities
  if (mixed || numbers == (targets.dtype() == DType::kI64)) return;
  throw InputError("the loss " + word_of(loss.type) + " needs " + words_for(kind).needed +
                   (numbers ? ", the dataset has floats" : ", the dataset has class labels"));
}

}  // namespace

const LossInfo& loss_info(Loss::Type type) { return kLosses.at(static_cast<std::size_t>(type)); }

void validate_loss(const Loss& loss, const Dataset& dataset) {
  const TargetKind needed = loss_info(loss.type).targets;
  const TargetKind found = target_kind(dataset.targets, dataset.classes);
  if (needed == found) return;
  throw InputError("the loss " + word_of(loss.type) + " needs " + words_for(needed).needed +
                   ", the dataset has " + words_for(found).found);
}

Variable compute_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                      const LossPart& part) {
  require_dtype(loss, targets);
  return loss_info(loss.type).compute(loss, rows_of(loss, outputs), targets, part);
}

Variable rows_of(const Loss& loss, const Variable& outputs) {
  const TargetKind kind = loss_info(loss.type).targets;
  const bool rows = kind == TargetKind::kClass || kind == TargetKind::kMarks;
  const Shape& shape = outputs.shape();
  if (!rows || shape.size() < 3) return outputs;
  return reshape(outputs, {shape[0], shape_size({shape.begin() + 1, shape.end()})});
}

double loss_of_zero_outputs(const Loss& loss, const Dataset& dataset) {
  return loss_info(loss.type).of_zero_outputs(loss, dataset);
}

Variable frames_of(const Variable& outputs, std::int64_t characters) {
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
  for (Tensor* weights : {&loss.class_weights, &loss.positive_weights}) {
    if (weights->defined()) *weights = weights->to(device);
  }
  return loss;
}

}  // namespace steelyard
