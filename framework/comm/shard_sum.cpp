#include "steelyard/framework/comm/shard_sum.h"

#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::comm {
namespace {

void add_to(const Tensor& sum, const Tensor& value) {
  if (sum.shape() != value.shape() || sum.dtype() != value.dtype() ||
      sum.device() != value.device()) {
    throw std::invalid_argument("[ShardSum] expected another " + shape_string(sum.shape()) +
                                ", got " + shape_string(value.shape()) +
                                " or another dtype or device");
  }
  visit_floating(sum.dtype(), "ShardSum", [&](auto zero) {
    using T = decltype(zero);
    T* data = sum.data<T>();
    run(sum.device(), kernels::Add<T>{sum.size(), data, value.data<T>(), data});
  });
}

}  // namespace

ShardRange shards_of_rank(int rank, int ranks, std::int64_t shards) {
  const auto is_power = [](std::int64_t n) {
    return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
  };
  if (!is_power(ranks) || !is_power(shards) || ranks > shards) {
    throw InputError("batches cut into " + std::to_string(shards) +
                     " shards cannot be divided among " + std::to_string(ranks) +
                     " ranks: both must be powers of two, and every rank needs a shard");
  }
  const std::int64_t each = shards / ranks;
  return {rank * each, (rank + 1) * each};
}

void ShardSum::add(Tensor value) {
  std::size_t level = 0;
  for (; (shards_ >> level & 1) != 0; ++level) {
    add_to(held_[level], value);
    value = std::exchange(held_[level], {});
  }
  if (level == held_.size()) held_.emplace_back();
  held_[level] = std::move(value);
  ++shards_;
}

Tensor ShardSum::take() {
  if (!std::has_single_bit(static_cast<std::uint64_t>(shards_))) {
    throw std::logic_error("[ShardSum] expected 1, 2, 4, 8 ... shards, got " +
                           std::to_string(shards_));
  }
  Tensor sum = std::move(held_.back());
  held_.clear();
  shards_ = 0;
  return sum;
}

}  // namespace steelyard::comm
