#include "steelyard/framework/ops/strided.h"

#include <algorithm>

#include "steelyard/framework/ops/op_support.h"

namespace steelyard::ops {
namespace {

// The row-major strides of `own` as part of the larger `shape`: 0 where it repeats.
std::vector<std::int64_t> strides_in(const Shape& own, const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::int64_t size = own[own.size() - 1 - i];
    if (size != 1) strides[shape.size() - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

}  // namespace

std::vector<std::int64_t> row_major_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

kernels::StridedIndex strided_index(const char* op, const Shape& shape,
                                    const std::vector<std::int64_t>& strides) {
  kernels::StridedIndex index;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    const int last = index.axes - 1;
    if (index.axes > 0 && index.strides[last] == strides[axis] * shape[axis]) {
      index.sizes[last] *= shape[axis];
      index.strides[last] = strides[axis];
      continue;
    }
    if (index.axes == kernels::kMaxBroadcastAxes) {
      fail(op, "at most " + std::to_string(kernels::kMaxBroadcastAxes) + " axes",
           shape_string(shape));
    }
    index.sizes[index.axes] = shape[axis];
    index.strides[index.axes++] = strides[axis];
  }
  return index;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape shape(rank);
  for (std::size_t i = 0; i < rank; ++i) {  // from the last axis on
    const std::int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      fail(op, "shapes that broadcast", shape_string(a) + " and " + shape_string(b));
    }
    shape[rank - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

kernels::StridedIndex broadcast_index(const char* op, const Shape& own, const Shape& shape) {
  return strided_index(op, shape, strides_in(own, shape));
}

}  // namespace steelyard::ops
