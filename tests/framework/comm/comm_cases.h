// What every backend has to pass; tests run it in threads, a program runs it under mpirun.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/comm/communicator.h"

namespace steelyard::testing {

// Values of very different magnitudes, so that sums in another order have other bits.
template <typename T>
std::vector<T> shard_values(std::int64_t shard, std::int64_t tensor, std::int64_t size);

// The sum over `shards` of a tensor's values in the binary tree over the shards, by definition.
template <typename T>
std::vector<T> tree_of_shards(std::int64_t begin, std::int64_t end, std::int64_t tensor,
                              std::int64_t size);

// Sums of f32 and f64 over `shards`, blocking and in buckets that are waited for in another order.
// Throws std::runtime_error at the first wrong bit.
void check_sums(comm::Communicator& ranks, std::int64_t shards, Device device = {});
// Everything else that a communicator does.
void check_exact_collectives(comm::Communicator& ranks);

}  // namespace steelyard::testing
