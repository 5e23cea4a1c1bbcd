#include "steelyard/framework/ops/moves/strided.h"

#include <algorithm>

#include "steelyard/framework/ops/op_messages.h"
#include "steelyard/framework/tensor/on_device.h"

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

// f(a value of the C++ type of a dtype of floats or codes).
template <typename F>
void visit_copied(DType dtype, const char* op, const F& f) {
  switch (dtype) {
    case DType::kI8:
      return f(std::int8_t{0});
    case DType::kU8:
      return f(std::uint8_t{0});
    case DType::kI32:
      return f(std::int32_t{0});
    default:
      visit_floating(dtype, op, f);
  }
}

void copy(const char* op, const Tensor& from, const Part* of_from, const Tensor& to,
          const Part* of_to) {
  const Part& part = of_from != nullptr ? *of_from : *of_to;
  const std::int64_t n = shape_size(part.shape);
  if (n == 0) return;
  const auto dense = strided_index(op, part.shape, row_major_strides(part.shape));
  const auto at = strided_index(op, part.shape, part.strides);
  visit_copied(to.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(to.device(),
        kernels::CopyStrided<T>{.n = n,
                                .x = from.data<T>() + (of_from != nullptr ? part.first : 0),
                                .from = of_from != nullptr ? at : dense,
                                .y = to.data<T>() + (of_to != nullptr ? part.first : 0),
                                .to = of_to != nullptr ? at : dense});
  });
}

}  // namespace

Tensor gathered(const char* op, const Tensor& x, const Part& part) {
  Tensor y = Tensor::empty(part.shape, x.dtype(), x.device());
  gather(op, x, part, y);
  return y;
}

void gather(const char* op, const Tensor& x, const Part& part, const Tensor& y) {
  copy(op, x, &part, y, nullptr);
}

void scatter(const char* op, const Tensor& values, const Tensor& y, const Part& part) {
  copy(op, values, nullptr, y, &part);
}

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
