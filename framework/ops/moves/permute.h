// Dimensions in another order, and another shape.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// The options of permute(): dimension i of the output is dimension order[i] of the input.
struct AxisOrder {
  std::vector<std::int64_t> order{};
  static constexpr auto fields() { return std::tuple(field("order", &AxisOrder::order)); }
};

// The options of what gives another shape: reshape(), expand().
struct NewShape {
  Shape shape{};
  static constexpr auto fields() { return std::tuple(field("shape", &NewShape::shape)); }
};

// y whose dimension i is dimension order[i] of x, of at most 6. The order is a permutation.
Variable permute(const Variable& x, const std::vector<std::int64_t>& order);

// Throws std::invalid_argument, naming `op`, unless permute() takes that order of such a tensor.
namespace ops {
void require_permutation(const char* op, const Shape& x, const std::vector<std::int64_t>& order);
}

// permute() that swaps dimensions a and b; negative ones count from the end.
Variable transpose(const Variable& x, std::int64_t a, std::int64_t b);

// x under another shape of equal size: the elements stay in their order.
Variable reshape(const Variable& x, Shape shape);

}  // namespace steelyard
