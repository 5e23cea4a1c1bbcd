#include <stdexcept>

#include "steelyard/c/plan.h"
#include "steelyard/c/views.h"
#include "steelyard/framework/ops/moves/strided.h"

namespace steelyard::c {
namespace {

using kernels::ArrayType;
using kernels::QuantArray;

ArrayType array_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ArrayType::kF32;
    case DType::kF64:
      return ArrayType::kF64;
    case DType::kF16:
      return ArrayType::kF16;
    case DType::kBF16:
      return ArrayType::kBF16;
    case DType::kI8:
      return ArrayType::kS8;
    case DType::kU8:
      return ArrayType::kU8;
    case DType::kI32:
      return ArrayType::kI32;
    case DType::kI64:
      return ArrayType::kI64;
    case DType::kBool:
      break;
  }
  return ArrayType::kBool;
}

QuantArray array_of(const View& view, std::int64_t count) {
  QuantArray array;
  array.data = view.data;
  array.type = array_type_of(view.dtype);
  array.count = count;
  return array;
}

// Values, which have the plan's shape and strides.
QuantArray values(const steelyard_plan& plan, const DLTensor* tensor, const char* name) {
  if (tensor == nullptr) return {};
  const kernels::QuantDescriptor& d = plan.plan.descriptor();
  const View view = view_of(tensor, name);
  require_shape(view, name, d.shape);
  const Shape strides = d.strides.empty() ? ops::row_major_strides(d.shape) : d.strides;
  std::int64_t reach = view.size() > 0 ? 1 : 0;  // elements from the first to the last offset
  for (std::size_t axis = 0; view.size() > 0 && axis < strides.size(); ++axis) {
    if (strides[axis] > 0) reach += (view.shape[axis] - 1) * strides[axis];
    if (view.shape[axis] == 1 || view.strides[axis] == strides[axis]) continue;
    throw std::invalid_argument(std::string(name) + ": expected the plan's strides " +
                                shape_string(strides) + ", got " + shape_string(view.strides));
  }
  require_on(view, name, plan.device);
  return array_of(view, reach);
}

// Any other array.
QuantArray dense(const steelyard_plan& plan, const DLTensor* tensor, const char* name) {
  if (tensor == nullptr) return {};
  const View view = view_of(tensor, name);
  require_dense(view, name);
  require_on(view, name, plan.device);
  return array_of(view, view.size());
}

}  // namespace

kernels::QuantArrays plan_arrays(const steelyard_plan& plan, const steelyard_plan_arrays& given) {
  return {.x = values(plan, given.x, "x"),
          .grad_y = values(plan, given.grad_y, "grad_y"),
          .y = values(plan, given.y, "y"),
          .grad_x = values(plan, given.grad_x, "grad_x"),
          .codes = dense(plan, given.codes, "codes"),
          .mask = dense(plan, given.mask, "mask"),
          .scale = dense(plan, given.scale, "scale"),
          .zero_point = dense(plan, given.zero_point, "zero_point"),
          .grad_scale = dense(plan, given.grad_scale, "grad_scale"),
          .grad_zero_point = dense(plan, given.grad_zero_point, "grad_zero_point"),
          .non_finite_count = dense(plan, given.non_finite_count, "non_finite_count"),
          .range_lo = dense(plan, given.range_lo, "range_lo"),
          .range_hi = dense(plan, given.range_hi, "range_hi"),
          .initialized = dense(plan, given.initialized, "initialized"),
          .observing = dense(plan, given.observing, "observing"),
          .quantizing = dense(plan, given.quantizing, "quantizing")};
}

}  // namespace steelyard::c
