// Joining tensors along a dimension: by default the last one, the channels of images and the
// features of rows.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export

namespace steelyard {

// y[..., C1 + C2 + ..., ...] of x1[..., C1, ...], x2[..., C2, ...], ...: at least one tensor, one
// dtype, and equal shapes but for that dimension, which may be counted from the end.
Variable concat(const std::vector<Variable>& inputs, std::int64_t axis = -1);

// The parts of `joined`, whose last dimension is the sum of the widths.
std::vector<Tensor> split(const Tensor& joined, const std::vector<std::int64_t>& widths);

}  // namespace steelyard
