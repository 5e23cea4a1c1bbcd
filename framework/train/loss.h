// The training objective.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/data/dataset.h"

namespace steelyard {

struct LossInfo;
struct MetricInfo;  // framework/train/metrics.h

// What the differences between a model's outputs and those of its float form are counted in, so
// that none of several outputs outweighs the others and outputs of zeros have the loss 1.
struct OutputUnits {
  // Of the outputs of one sample, flattened: f32 [values], what a difference is multiplied by
  // before it is squared. Undefined: all are 1.
  Tensor scales = {};
  // Whether the last dimension holds logits of classes: then the divergence of their softmax is
  // compared, and `divergence` is that of equal chances.
  bool logits = false;
  double divergence = 1;
};

struct Loss {
  enum class Type {
    kCrossEntropy,
    kMeanSquaredError,
    kHuber,
    kBinaryCrossEntropy,
    kCosine,
    kCtc,
    kFidelity,  // to the outputs that a float model gives
    kTokenCrossEntropy,
    kOwn  // a program's
  };
  Type type = Type::kCrossEntropy;
  double label_smoothing = 0.0;  // cross-entropy only
  double huber_delta = 1.0;      // Huber only
  bool zero_infinity = false;    // CTC only: impossible targets count as a loss of 0
  Tensor class_weights = {};     // cross-entropy only: f64 [classes]; undefined: all are 1
  Tensor positive_weights = {};  // binary cross-entropy only: f64 [1] or [classes]; the same
  std::int64_t characters = 0;   // texts only: classes of outputs [N, characters * frames]
  std::int64_t frames = 0;       // texts only: of those outputs; 0: not known
  OutputUnits units = {};        // fidelity only
  std::shared_ptr<const LossInfo> own = {};  // kOwn only
  // A program's, which are measured beside the library's; null: none.
  std::shared_ptr<const std::vector<MetricInfo>> own_metrics = {};
};

// A part of a batch whose loss has its share in the batch's: the weights of all the batch's labels,
// and the part's rows of the batch's. Undefined where the loss has no class weights.
struct LossPart {
  Tensor total_weight = {};
  double rows = 1;  // rows of the batch / rows of the part
};

// The properties of a loss, the library's or a program's.
struct LossInfo {
  // What it compares outputs with; also says how they are read: of classes, marks and texts they
  // are logits.
  TargetKind targets = TargetKind::kClass;
  // A recorded scalar of the outputs' dtype: the mean over rows. Mixed samples have probabilities
  // f32 [N, C] as targets.
  std::function<Variable(const Loss& loss, const Variable& outputs, const Tensor& targets,
                         const LossPart& part)>
      compute = {};
  // The loss of outputs that are all zero; 0 if that depends on the model. Absent: computed where
  // targets have the shape of outputs, else 0.
  std::function<double(const Loss& loss, const Dataset& dataset)> of_zero_outputs = {};
  std::string name = {};  // a program's, in recipes and messages; the library's have words
  Loss::Type type = Loss::Type::kOwn;
};

const LossInfo& loss_info(const Loss& loss);

// As recipes and messages call it.
std::string loss_name(const Loss& loss);

// Throws InputError when a dataset's targets are of the wrong kind for the loss.
void validate_loss(const Loss& loss, const Dataset& dataset);

// The loss of one batch of outputs as a recorded scalar; validates the targets. Cross-entropy takes
// probabilities f32 [N, C] too, which mixed samples have. Throws std::logic_error that names the
// loss where its function is missing or gives anything but one number of the outputs' dtype.
Variable compute_loss(const Loss& loss, const Variable& outputs, const Tensor& targets,
                      const LossPart& part = {});

// The loss of outputs that are all zero; for classes these mean equal probabilities. The divergence
// limit is a multiple of it, because targets may have any unit.
double loss_of_zero_outputs(const Loss& loss, const Dataset& dataset);

// Outputs as the loss compares them with targets: a row for each sample where these are classes or
// marks, so that a network may give images, and for each token of a sequence; otherwise as they
// are.
Variable rows_of(const Loss& loss, const Variable& outputs);

// CTC's outputs [N, frames, characters] of a model that gives those or [N, characters * frames],
// the order in which Flatten leaves them. Throws InputError where they cannot be divided.
Variable frames_of(const Variable& outputs, std::int64_t characters);

// The loss as evaluation computes it: without label smoothing and weights.
Loss plain_loss(Loss loss);

// The loss with its tensors moved to the device.
Loss on_device(Loss loss, Device device);

}  // namespace steelyard
