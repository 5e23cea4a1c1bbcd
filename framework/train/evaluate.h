// Loss and metrics of a model on a dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/train/metrics.h"

namespace steelyard {

// *sum += weight * value of rank 0, in double: f64, on the value's device. Does not wait for the
// device.
void add_weighted(const Tensor& value, double weight, const Tensor& sum);

// Adds to `count`, i64 of rank 0, how many rows of logits [N, ...], of which each has a value for
// every class, are largest at their i64 label [N]. All on one device. Does not wait for the device.
void add_correct(const Tensor& logits, const Tensor& labels, const Tensor& count);
// The number of correct rows, as add_correct() counts them. Waits for a GPU.
std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

// What the model gives in evaluation mode for every sample, f32 [N, ...] on the host; computed on
// the device of its parameters. The dataset is not empty.
Tensor outputs_of(Module& model, const Dataset& dataset, const Normalization& normalization,
                  std::int64_t batch_size);

// Why an evaluation has no finite loss: "the output of body.log, for test.safetensors: sample 5",
// of the first batch and the first module whose output is not finite; "" where all are. Repeats the
// evaluation up to there.
std::string first_non_finite(Module& model, const Dataset& dataset,
                             const Normalization& normalization, std::int64_t batch_size);
// "test.safetensors: sample 5: " and the error, for the first sample in evaluation of which the
// model throws std::out_of_range, as of a token that its table does not have; "" where there is
// none.
std::string first_refused(Module& model, const Dataset& dataset, const Normalization& normalization,
                          std::int64_t batch_size);

struct Evaluation {
  Metrics metrics;
  Predictions predictions;
};

// Runs the model in evaluation mode over the whole dataset, on the device of its parameters,
// without recording operations. Waits for a GPU once, at the end, if the model does not wait for it
// in every pass (GradNode::check).
Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size);
// The result of evaluate(), bit for bit, computed by several ranks that have the same model and
// share the batches.
Metrics evaluate(Module& model, const Dataset& dataset, const Normalization& normalization,
                 const Loss& loss, std::int64_t batch_size, comm::Communicator& ranks);
// The result of evaluate() with the predictions from which the metrics are computed.
Evaluation evaluate_predictions(Module& model, const Dataset& dataset,
                                const Normalization& normalization, const Loss& loss,
                                std::int64_t batch_size, comm::Communicator& ranks);

}  // namespace steelyard
