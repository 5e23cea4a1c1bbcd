// Joining tensors along their last dimension: the channels of images, the features of rows.
#pragma once

#include <vector>

#include "steelyard/framework/autograd.h"

namespace steelyard {

// y[..., C1 + C2 + ...] of x1[..., C1], x2[..., C2], ...: at least one tensor, one dtype, and equal
// shapes but for the last dimension.
Variable concat(const std::vector<Variable>& inputs);

// The parts of `joined`, whose last dimension is the sum of the widths.
std::vector<Tensor> split(const Tensor& joined, const std::vector<std::int64_t>& widths);

}  // namespace steelyard
