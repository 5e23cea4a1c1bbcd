#include <stdexcept>
#include <string_view>
#include <utility>

#include "steelyard/c/plan.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/kernels/code_type.h"

namespace steelyard::c {
namespace {

using kernels::QuantDirection;
using kernels::QuantOperation;
using kernels::Statistics;

DType dtype_of(kernels::ValueType type) {
  switch (type) {
    case kernels::ValueType::kF64:
      return DType::kF64;
    case kernels::ValueType::kF16:
      return DType::kF16;
    case kernels::ValueType::kBF16:
      return DType::kBF16;
    case kernels::ValueType::kF32:
      break;
  }
  return DType::kF32;
}

// Scales, gradients of scales and ranges: as wide as the arithmetic, whatever the values are.
DType parameter_dtype(kernels::ValueType type) {
  return type == kernels::ValueType::kF64 ? DType::kF64 : DType::kF32;
}

// What a call may compute in place.
bool in_place(std::string_view a, std::string_view b) {
  return (a == "x" && b == "y") || (a == "y" && b == "x") || (a == "grad_y" && b == "grad_x") ||
         (a == "grad_x" && b == "grad_y");
}

[[noreturn]] void refuse_overlap(const std::string& a, const std::string& b) {
  throw std::invalid_argument("expected " + a + " and " + b +
                              " apart or, in place, one array; got memory that overlaps");
}

}  // namespace

PlanArrays::PlanArrays(const steelyard_plan& plan, const steelyard_plan_arrays& given)
    : plan_(&plan) {
  const kernels::QuantProblem& p = plan.plan.problem();
  const bool forward = p.direction == QuantDirection::kForward;
  const bool takes_statistics = p.statistics != Statistics::kGiven;
  const bool averages = takes_statistics && p.statistics != Statistics::kDynamic;
  const bool quantizes = p.operation == QuantOperation::kQuantize;
  const DType real = parameter_dtype(p.value_type);
  const std::int64_t sets = p.map.sets;

  args_.x = values(given.x, "x", false);
  args_.grad_y = values(given.grad_y, "grad_y", false);
  args_.y = values(given.y, "y", true);
  args_.grad_x = values(given.grad_x, "grad_x", true);
  args_.codes = codes(given.codes, forward && quantizes);
  args_.mask = static_cast<std::uint8_t*>(
      dense(given.mask, "mask", {DType::kU8}, kernels::mask_bytes(p.map.elements), forward));
  args_.scale = dense(given.scale, "scale", {real}, sets, takes_statistics);
  args_.zero_point = static_cast<std::int32_t*>(
      dense(given.zero_point, "zero_point", {DType::kI32}, sets, takes_statistics));
  args_.grad_scale = dense(given.grad_scale, "grad_scale", {real}, sets, true);
  args_.grad_zero_point = dense(given.grad_zero_point, "grad_zero_point", {real}, sets, true);
  args_.non_finite_count = static_cast<std::int64_t*>(
      dense(given.non_finite_count, "non_finite_count", {DType::kI64}, 1, true));
  args_.range_lo = dense(given.range_lo, "range_lo", {real}, sets, averages);
  args_.range_hi = dense(given.range_hi, "range_hi", {real}, sets, averages);
  const auto switch_of = [&](const DLTensor* tensor, const char* name, bool written) {
    return static_cast<std::uint8_t*>(dense(tensor, name, {DType::kU8, DType::kBool}, 1, written));
  };
  args_.initialized = switch_of(given.initialized, "initialized", averages);
  args_.observing = switch_of(given.observing, "observing", false);
  args_.quantizing = switch_of(given.quantizing, "quantizing", false);
  require_apart();
}

void* PlanArrays::values(const DLTensor* tensor, const char* name, bool written) {
  if (tensor == nullptr) return nullptr;
  const kernels::QuantDescriptor& d = plan_->plan.descriptor();
  View view = view_of(tensor, name);
  require_dtype(view, name, {dtype_of(d.value_type)});
  require_shape(view, name, d.shape);
  const Shape strides = d.strides.empty() ? ops::row_major_strides(d.shape) : d.strides;
  for (std::size_t axis = 0; view.size() > 0 && axis < strides.size(); ++axis) {
    if (view.shape[axis] == 1 || view.strides[axis] == strides[axis]) continue;
    throw std::invalid_argument(std::string(name) + ": expected the plan's strides " +
                                shape_string(strides) + ", got " + shape_string(view.strides));
  }
  return keep(name, std::move(view), written);
}

void* PlanArrays::codes(const DLTensor* tensor, bool written) {
  const kernels::CodeType type = plan_->plan.problem().code_type;
  const bool bytes_are_signed = type == kernels::CodeType::kS8;
  return dense(tensor, "codes", {bytes_are_signed ? DType::kI8 : DType::kU8},
               kernels::packed_bytes(type, plan_->plan.elements()), written);
}

void* PlanArrays::dense(const DLTensor* tensor, const char* name,
                        std::initializer_list<DType> dtypes, std::int64_t length, bool written) {
  if (tensor == nullptr) return nullptr;
  View view = view_of(tensor, name);
  require_dtype(view, name, dtypes);
  require_dense(view, name);
  if (view.size() != length) {
    throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(length) +
                                " elements, got " + std::to_string(view.size()) + " of the shape " +
                                shape_string(view.shape));
  }
  return keep(name, std::move(view), written);
}

void* PlanArrays::keep(const char* name, View view, bool written) {
  require_on(view, name, plan_->device);
  return arrays_.emplace_back(Array{name, std::move(view), written}).view.data;
}

void PlanArrays::require_apart() const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Array &a = arrays_[j], &b = arrays_[i];
      if (!(a.written || b.written) || !overlap(a.view, b.view)) continue;
      if (a.view.data == b.view.data && in_place(a.name, b.name)) continue;
      refuse_overlap(a.name, b.name);
    }
  }
}

void PlanArrays::require_apart_from(const View& other, const char* name) const {
  for (const Array& array : arrays_) {
    if (overlap(array.view, other)) refuse_overlap(array.name, name);
  }
}

void PlanArrays::require_apart(const PlanArrays& others) const {
  for (const Array& a : arrays_) {
    for (const Array& b : others.arrays_) {
      if ((a.written || b.written) && overlap(a.view, b.view)) {
        refuse_overlap(a.name, std::string("another item's ") + b.name);
      }
    }
  }
}

}  // namespace steelyard::c
