// The predictions of a model for every sample of a dataset, reduced to what metrics need.
#pragma once

#include <cstdint>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/train/loss.h"

namespace steelyard {

// Tensors on the host; those that the kind of targets does not need are undefined.
struct Predictions {
  Tensor classes = {};  // kClass: i64 [N], the largest output
  Tensor ranks = {};    // kClass: i64 [N], how many outputs are larger than the label's
  // kClass: f64 [N], -log of the label's probability; kTokens: f64 [N, length], likewise
  Tensor losses = {};
  Tensor scores = {};          // kMarks: f32 [N, classes], the outputs
  Tensor squared_errors = {};  // kValues: f64 [columns], their sums over the samples
  Tensor characters = {};      // kText: i64 [N, frames], the largest of every frame
};

// Collects predictions batch by batch on the device of the outputs, without waiting for it until
// finish().
class PredictionRecord {
 public:
  // The dataset outlives it; batches are those of evaluation, `batch_size` samples each.
  PredictionRecord(const Loss& loss, const Dataset& dataset, std::int64_t batch_size,
                   Device device);
  // Of tokens, a batch may have a part of its targets, those from `first_token` on.
  void add(const Tensor& outputs, const Batch& batch, std::int64_t first_token = 0);
  // The predictions of all batches. With several ranks, each of which had a part of the batches,
  // the bits are those of one rank.
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
