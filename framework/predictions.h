// What a model gives for every sample of a dataset, in the short form that metrics need.
#pragma once

#include <cstdint>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/loss.h"

namespace steelyard {

// On the host; what the loss's kind of targets does not need is undefined.
struct Predictions {
  Tensor classes = {};         // kClass: i64 [N], the largest output
  Tensor ranks = {};           // kClass: i64 [N], how many outputs are larger than the label's
  Tensor losses = {};          // kClass: f64 [N], -log of the label's probability
  Tensor scores = {};          // kMarks: f32 [N, classes], the outputs
  Tensor squared_errors = {};  // kValues: f64 [columns], their sums over the samples
  Tensor characters = {};      // kText: i64 [N, frames], the largest of every frame
};

// Gathers them batch by batch on the device of the outputs, which nobody waits for until finish().
class PredictionRecord {
 public:
  // The dataset outlives it; batches are those of evaluation, `batch_size` samples each.
  PredictionRecord(const Loss& loss, const Dataset& dataset, std::int64_t batch_size,
                   Device device);
  void add(const Tensor& outputs, const Batch& batch);
  // Of all batches, of ranks that had some of them each: the same bits as of one rank.
  Predictions finish(comm::Communicator& ranks);

 private:
  void agree_on_frames(comm::Communicator& ranks);

  const Loss& loss_;
  const Dataset& dataset_;
  std::int64_t batch_size_;
  Device device_;
  Predictions all_;  // squared_errors: [batches, columns]
};

}  // namespace steelyard
