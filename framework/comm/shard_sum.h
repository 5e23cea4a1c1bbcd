// Division of a batch's shards among ranks, and the sum of a rank's own shards.
//
// Shard sums form a binary tree over the shards' indices. A rank has an aligned subtree of it and
// adds as a binary counter counts: two sums of equally many shards become one at once. What is left
// is the sum of the subtree, which Communicator::sum() joins to those of the other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::comm {

struct ShardRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

// The shards of a rank. Throws InputError unless both numbers are powers of two and every rank has
// a shard.
ShardRange shards_of_rank(int rank, int ranks, std::int64_t shards);

// Adds one tensor of each shard: a gradient. Holds at most log2(shards) + 1 of them.
class ShardSum {
 public:
  // Takes the next shard's tensor, f32 or f64, on any device, whose memory becomes that of a sum.
  // A shard without rows gives zeros.
  void add(Tensor value);
  std::int64_t shards() const { return shards_; }
  // The sum of what was added, and begins anew. Throws std::logic_error unless 1, 2, 4, 8 ...
  // shards were added.
  Tensor take();

 private:
  std::int64_t shards_ = 0;
  std::vector<Tensor> held_;  // held_[i], where bit i of shards_ is set: a sum of 2^i shards
};

}  // namespace steelyard::comm
