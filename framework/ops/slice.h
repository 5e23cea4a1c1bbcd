// Parts of tensors, and tensors with a border.
#pragma once

#include <vector>

#include "steelyard/framework/autograd.h"
#include "steelyard/framework/ops/strided.h"

namespace steelyard {

// The positions that are taken along one dimension: first, first + step, ...
struct TakenAxis {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  // negative: backwards
  bool operator==(const TakenAxis&) const = default;
};

// The part of x of one TakenAxis for each dimension. Throws std::invalid_argument where a position
// is outside of x.
Variable slice(const Variable& x, const std::vector<TakenAxis>& axes);

// The part of a dense tensor that they take.
namespace ops {
Part part_of(const Shape& whole, const std::vector<TakenAxis>& axes);
}

// A border as exports read it: how many elements of `value` lie before each dimension.
struct Border {
  std::vector<std::int64_t> before{};
  double value = 0;
};

// x with `before[i]` and `after[i]` elements of `value` at both ends of dimension i; negative ones
// cut off.
Variable pad(const Variable& x, const std::vector<std::int64_t>& before,
             const std::vector<std::int64_t>& after, double value = 0);

}  // namespace steelyard
