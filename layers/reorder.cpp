#include "steelyard/layers/reorder.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {
namespace {

std::size_t index_of(const char* layer, std::int64_t axis, const Shape& shape) {
  if (axis >= 0 && axis < std::ssize(shape)) return static_cast<std::size_t>(axis);
  throw std::invalid_argument("[" + std::string(layer) + "] expected a dimension of " +
                              shape_string(shape) + ", got " + std::to_string(axis));
}

using Axes = std::vector<std::int64_t>;

struct ReductionRow {
  Reduction value;
  const char* layer;
  Variable (*function)(const Variable& x, const Axes& axes, ReducedAxes reduced);
};
constexpr ReductionRow kReductions[] = {
    {Reduction::kSum, "ReduceSum",
     [](const Variable& x, const Axes& axes, ReducedAxes reduced) {
       return sum(x, axes, reduced);
     }},
    {Reduction::kMean, "ReduceMean", mean},
    {Reduction::kMax, "ReduceMax", amax},
    {Reduction::kMin, "ReduceMin", amin},
};
static_assert(has_every_value(kReductions, Reduction::kMin));

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

Shape Reshape::shape_for(const Shape& input) const {
  Shape shape = shape_;
  for (std::size_t i = 0; i < shape.size() && i < input.size(); ++i) {
    if (shape[i] == 0) shape[i] = input[i];
  }
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const std::int64_t known = shape_size(shape), size = shape_size(input);
    if (known == 0 || size % known != 0) {
      throw std::invalid_argument("[Reshape] " + shape_string(input) + " does not fit " +
                                  shape_string(shape_));
    }
    *open = size / known;
  }
  return shape;
}

Variable Reshape::forward(const Variable& x, ForwardContext&) {
  return reshape(x, shape_for(x.shape()));
}
std::string Reshape::description() const { return "Reshape(" + shape_string(shape_) + ")"; }

std::vector<TakenAxis> Slice::taken_of(const Shape& input) const {
  std::vector<TakenAxis> axes;
  for (const std::int64_t extent : input) axes.push_back({0, extent, 1});
  axes[index_of("Slice", axis_, input)] = taken_;
  return axes;
}

Variable Slice::forward(const Variable& x, ForwardContext&) {
  return slice(x, taken_of(x.shape()));
}

Variable CumulativeSum::forward(const Variable& x, ForwardContext&) {
  return cumulative_sum(x, options_);
}

Variable Pad::forward(const Variable& x, ForwardContext&) {
  return pad(x, before_, after_, value_);
}

Variable Expand::forward(const Variable& x, ForwardContext&) {
  Shape shape = shape_;
  const std::size_t added = shape.size() - std::min(shape.size(), x.shape().size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0) continue;
    if (i < added || x.shape().size() > shape.size()) {
      throw std::invalid_argument("[Expand] " + shape_string(x.shape()) + " does not fit " +
                                  shape_string(shape_));
    }
    shape[i] = x.shape()[i - added];
  }
  return expand(x, shape);
}
std::string Expand::description() const { return "Expand(" + shape_string(shape_) + ")"; }

Variable Reduce::forward(const Variable& x, ForwardContext&) {
  const ReducedAxes reduced = keep_ ? ReducedAxes::kKeep : ReducedAxes::kDrop;
  return row_in(kReductions, reduction_).function(x, axes_, reduced);
}

std::string Reduce::type_name() const { return row_in(kReductions, reduction_).layer; }

Variable CatAxis::join(const std::vector<Variable>& inputs, ForwardContext&) {
  return concat(inputs, axis_);
}

Variable Resize::forward(const Variable& x, ForwardContext&) { return resize(x, height_, width_); }

std::string Resize::description() const {
  return "Resize(" + std::to_string(height_.outputs) + "x" + std::to_string(width_.outputs) + ")";
}

}  // namespace steelyard
