#include "steelyard/layers/reorder.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/concat.h"
#include "steelyard/framework/ops/linear.h"
#include "steelyard/framework/ops/permute.h"

namespace steelyard {
namespace {

std::size_t index_of(const char* layer, std::int64_t axis, const Shape& shape) {
  if (axis >= 0 && axis < std::ssize(shape)) return static_cast<std::size_t>(axis);
  throw std::invalid_argument("[" + std::string(layer) + "] expected a dimension of " +
                              shape_string(shape) + ", got " + std::to_string(axis));
}

// [.., what lies before the axis, the axis and what lies behind it].
Shape joined_behind(const Shape& shape, std::size_t axis) {
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  return {std::accumulate(shape.begin(), at, std::int64_t{1}, std::multiplies<>()),
          std::accumulate(at, shape.end(), std::int64_t{1}, std::multiplies<>())};
}

}  // namespace

Variable Permute::forward(const Variable& x, ForwardContext&) { return permute(x, order_); }
std::string Permute::description() const { return "Permute(" + shape_string(order_) + ")"; }

Reshape::Reshape(Shape shape) : shape_(std::move(shape)) {
  const auto open = std::count(shape_.begin(), shape_.end(), -1);
  const bool fits =
      open <= 1 && std::all_of(shape_.begin(), shape_.end(), [](auto d) { return d >= -1; });
  if (!fits) {
    throw std::invalid_argument("[Reshape] expected sizes, and -1 at most once, got " +
                                shape_string(shape_));
  }
}

Variable Reshape::forward(const Variable& x, ForwardContext&) {
  Shape shape = shape_;
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const std::int64_t known = shape_size(shape), size = shape_size(x.shape());
    if (known == 0 || size % known != 0) {
      throw std::invalid_argument("[Reshape] " + shape_string(x.shape()) + " does not fit " +
                                  shape_string(shape_));
    }
    *open = size / known;
  }
  return reshape(x, shape);
}
std::string Reshape::description() const { return "Reshape(" + shape_string(shape_) + ")"; }

Variable Slice::forward(const Variable& x, ForwardContext&) {
  std::vector<TakenAxis> axes;
  for (const std::int64_t extent : x.shape()) axes.push_back({0, extent, 1});
  axes[index_of("Slice", axis_, x.shape())] = taken_;
  return slice(x, axes);
}

Variable Pad::forward(const Variable& x, ForwardContext&) {
  return pad(x, before_, after_, value_);
}

Variable Reduce::forward(const Variable& x, ForwardContext&) {
  const ReducedAxes reduced = keep_ ? ReducedAxes::kKeep : ReducedAxes::kDrop;
  return reduction_ == Reduction::kSum ? sum(x, axes_, reduced) : mean(x, axes_, reduced);
}

Variable CatAxis::join(const std::vector<Variable>& inputs, ForwardContext&) {
  if (inputs.empty()) throw std::invalid_argument("[CatAxis] expected inputs, got none");
  Shape shape = inputs[0].shape();
  const std::size_t axis = index_of("CatAxis", axis_, shape);
  shape[axis] = 0;
  std::vector<Variable> rows;
  for (const Variable& x : inputs) {
    Shape other = x.shape();
    if (other.size() == shape.size()) {
      shape[axis] += other[axis];
      other[axis] = shape[axis];
    }
    if (other != shape) {
      throw std::invalid_argument(
          "[CatAxis] expected shapes that differ in dimension " + std::to_string(axis_) +
          " only, got " + shape_string(inputs[0].shape()) + " and " + shape_string(x.shape()));
    }
    rows.push_back(reshape(x, joined_behind(x.shape(), axis)));
  }
  return reshape(concat(rows), shape);
}

Resize::Resize(ResizedAxis height, ResizedAxis width)
    : height_(std::move(height)), width_(std::move(width)) {
  for (std::size_t i = 0; i < 2; ++i) {
    const ResizedAxis& axis = i == 0 ? height_ : width_;
    if (axis.repeats == 0) weights_[i] = Tensor::from(axis.weights, {axis.outputs, axis.inputs});
  }
}

Variable Resize::forward(const Variable& x, ForwardContext&) {
  if (x.shape().size() != 4 || x.dim(1) != height_.inputs || x.dim(2) != width_.inputs) {
    throw std::invalid_argument("[Resize] expected images of " + std::to_string(height_.inputs) +
                                " x " + std::to_string(width_.inputs) + ", got " +
                                shape_string(x.shape()));
  }
  Variable y = x;
  const std::int64_t n = x.dim(0), channels = x.dim(3);
  // A repeated value is the sum of it and zeros of the new shape.
  if (height_.repeats > 1 || width_.repeats > 1) {
    const std::int64_t rows = std::max<std::int64_t>(height_.repeats, 1);
    const std::int64_t columns = std::max<std::int64_t>(width_.repeats, 1);
    const Variable apart = reshape(y, {n, x.dim(1), 1, x.dim(2), 1, channels});
    const Variable zeros(Tensor::zeros({rows, 1, columns, 1}, x.dtype(), x.value().device()));
    y = reshape(broadcast_add(apart, zeros), {n, x.dim(1) * rows, x.dim(2) * columns, channels});
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (!weights_[i].defined()) continue;
    const Variable weights(weights_[i].to(x.dtype()).to(x.value().device()));
    y = i == 0 ? permute(linear(permute(y, {0, 2, 3, 1}), weights, {}), {0, 3, 1, 2})
               : permute(linear(permute(y, {0, 1, 3, 2}), weights, {}), {0, 1, 3, 2});
  }
  return y;
}

std::string Resize::description() const {
  return "Resize(" + std::to_string(height_.outputs) + "x" + std::to_string(width_.outputs) + ")";
}

}  // namespace steelyard
