// Dimensions in another order, and another shape.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export

namespace steelyard {

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
