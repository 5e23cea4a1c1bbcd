// Walks over arrays of other strides, and over operands that broadcast.
#pragma once

#include <vector>

#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/broadcast/broadcast.h"

namespace steelyard::ops {

// The strides of a dense array.
std::vector<std::int64_t> row_major_strides(const Shape& shape);

// Where the elements of `shape` lie in an array with these strides. Neighbouring axes that can be
// walked as one become one. Throws std::invalid_argument, naming `op`, where too many are left.
kernels::StridedIndex strided_index(const char* op, const Shape& shape,
                                    const std::vector<std::int64_t>& strides);

// Some elements of a dense array: which is the first, and how far apart they lie along each of the
// dimensions of `shape` (0 where they repeat).
struct Part {
  Shape shape;
  std::int64_t first = 0;
  std::vector<std::int64_t> strides;
};

// The part of x as a tensor of its own. Any dtype of floats or codes.
Tensor gathered(const char* op, const Tensor& x, const Part& part);
// The same into y, which has as many elements, in memory that is not x's.
void gather(const char* op, const Tensor& x, const Part& part, const Tensor& y);
// Writes `values`, of the part's shape, to the part of y, none of whose elements repeats.
void scatter(const char* op, const Tensor& values, const Tensor& y, const Part& part);

// The shape of two that broadcast. Throws std::invalid_argument, naming `op`, where they do not.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);
// Where the elements of `shape` lie in a dense array of the shape `own`, which broadcasts to it.
kernels::StridedIndex broadcast_index(const char* op, const Shape& own, const Shape& shape);

}  // namespace steelyard::ops
