// The orders of dimensions that files have for inputs and outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace steelyard {

// For each dimension of an input or output in a file that of the engine's tensor, whose first one
// is the batch and whose images have their channels last. `rank`: of a sample. Those of three
// dimensions are images, [C, H, W] in the file unless `channels_last`; the batch is the file's
// dimension `batch_axis`, which is at most `rank`.
inline std::vector<std::int64_t> file_order(std::size_t rank, bool channels_last,
                                            std::int64_t batch_axis) {
  std::vector<std::int64_t> order(rank);
  std::iota(order.begin(), order.end(), 1);
  if (rank == 3 && !channels_last) std::rotate(order.begin(), order.end() - 1, order.end());
  order.insert(order.begin() + batch_axis, 0);
  return order;
}

// The order of a transposition that makes dimensions in the order `to` of those in the order
// `from`.
inline std::vector<std::int64_t> order_between(const std::vector<std::int64_t>& from,
                                               const std::vector<std::int64_t>& to) {
  std::vector<std::int64_t> order;
  for (const std::int64_t axis : to) {
    order.push_back(std::find(from.begin(), from.end(), axis) - from.begin());
  }
  return order;
}

}  // namespace steelyard
