// Positions of a dimension, in any order and any number.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// x at `indices` along dimension `axis` (-1 is the last): x [A..., N, B...] and i64 indices [I...]
// on its device give [A..., I..., B...], as ONNX's Gather and, of a list, PyTorch's index_select
// do. The gradients of equal indices are added in their order. Throws std::out_of_range naming an
// index outside [0, N); on a GPU, where to look at it would mean to wait, such an index gives NaN
// instead, and has no gradient.
Variable gather(const Variable& x, const Tensor& indices, std::int64_t axis = 0);

namespace ops {
// gather() without the tape, for an `axis` from 0 on; `op` is the name in messages. On the CPU the
// caller has looked at the indices.
Tensor rows_at(const char* op, const Tensor& x, const Tensor& indices, std::size_t axis);
// The gradient of rows_at() for x of that shape.
Tensor gradient_of_rows(const char* op, const Shape& x, const Tensor& indices, std::size_t axis,
                        const Tensor& grad_output);
// The first index outside [0, extent) of those on the CPU, or -1 if there is none. Throws
// std::invalid_argument, naming `op`, unless they are i64.
std::int64_t first_outside(const char* op, const Tensor& indices, std::int64_t extent);
}  // namespace ops

}  // namespace steelyard
