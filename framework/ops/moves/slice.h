// Parts of tensors, and tensors with a border.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// The positions that are taken along one dimension: first, first + step, ...
struct TakenAxis {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  // negative: backwards
  bool operator==(const TakenAxis&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("first", &TakenAxis::first), field("count", &TakenAxis::count),
                      field("step", &TakenAxis::step));
  }
};

// The part of x of one TakenAxis for each dimension. Throws std::invalid_argument where a position
// is outside of x.
Variable slice(const Variable& x, const std::vector<TakenAxis>& axes);

namespace ops {
// The part of a dense tensor that they take.
Part part_of(const Shape& whole, const std::vector<TakenAxis>& axes);
// Throw std::invalid_argument, naming `op`, unless the positions are inside of a tensor of that
// shape, or where a border has not two numbers for each of its dimensions.
void require_inside(const char* op, const Shape& whole, const std::vector<TakenAxis>& axes);
void require_border(const char* op, const Shape& x, const std::vector<std::int64_t>& before,
                    const std::vector<std::int64_t>& after);
}  // namespace ops

// x with `before[i]` and `after[i]` elements of `value` at both ends of dimension i; negative ones
// cut off.
Variable pad(const Variable& x, const std::vector<std::int64_t>& before,
             const std::vector<std::int64_t>& after, double value = 0);

}  // namespace steelyard
