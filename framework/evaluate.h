// Loss and accuracy of a model on a dataset.
#pragma once

#include <cstdint>
#include <optional>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/module.h"

namespace steelyard {

// The training objective.
struct Loss {
  enum class Type { kCrossEntropy, kMeanSquaredError, kHuber };
  Type type = Type::kCrossEntropy;
  double label_smoothing = 0.0;  // cross-entropy only
  double huber_delta = 1.0;      // Huber only
};

// Throws InputError when targets are of the wrong kind for the loss.
void validate_loss(const Loss& loss, const Tensor& targets);

// The loss of one batch of outputs as a recorded scalar; validates the targets.
Variable compute_loss(const Loss& loss, const Variable& outputs, const Tensor& targets);

// The loss of outputs that are all zero, which for classes means the same probability for each. A
// training loss is compared with it, since targets may have any unit.
double loss_of_zero_outputs(const Loss& loss, const Dataset& dataset);

struct Metrics {
  double loss = 0;               // mean over samples, without label smoothing
  std::optional<double> top1{};  // percent, for class targets
};

// *sum += weight * value of rank 0, in double: f64, on the value's device. Does not wait for the
// device.
void add_weighted(const Tensor& value, double weight, const Tensor& sum);

// Adds to `count`, i64 of rank 0, how many rows of logits [N, classes] are largest at their i64
// label [N]. All on one device. Does not wait for the device.
void add_correct(const Tensor& logits, const Tensor& labels, const Tensor& count);
// That number by itself. Waits for a GPU.
std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

// Runs the model in evaluation mode, unrecorded, over the whole dataset, where its parameters are.
// A GPU is waited for once, at the end.
Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size);
// The same, to the bit, by ranks that have the same model and share the batches.
Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size, comm::Communicator& ranks);

// True when `a` is the better model: higher top1, or lower loss where there is none.
bool is_better(const Metrics& a, const Metrics& b);

}  // namespace steelyard
