#include "steelyard/framework/ops/moves/concat.h"

#include <numeric>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

std::int64_t rows_of(const Tensor& x) { return x.dim(-1) == 0 ? 0 : x.size() / x.dim(-1); }

Shape with_width(Shape shape, std::int64_t width) {
  shape.back() = width;
  return shape;
}

// Copies `width` columns of `from`, from column `from_first` on, to those of `to` from `to_first`.
void copy_columns(const Tensor& from, std::int64_t from_first, const Tensor& to,
                  std::int64_t to_first, std::int64_t width) {
  if (width == 0 || rows_of(from) == 0) return;
  visit_floating(to.dtype(), "concat", [&](auto zero) {
    using T = decltype(zero);
    run(to.device(), kernels::CopyColumns<T>{.rows = rows_of(from),
                                             .columns = width,
                                             .x = from.data<T>() + from_first,
                                             .x_stride = from.dim(-1),
                                             .y = to.data<T>() + to_first,
                                             .y_stride = to.dim(-1)});
  });
}

// [what lies before the axis, it and what lies after it].
Shape rows_at(const Shape& shape, std::size_t axis) {
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  return {std::accumulate(shape.begin(), at, std::int64_t{1}, std::multiplies<>()),
          std::accumulate(at, shape.end(), std::int64_t{1}, std::multiplies<>())};
}

class ConcatFunction : public Function, public Describes<std::int64_t> {
 public:
  explicit ConcatFunction(std::size_t axis) : axis_(axis) {}
  std::string name() const override { return "concat"; }
  std::int64_t described() const override { return static_cast<std::int64_t>(axis_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<std::int64_t> widths;
    for (const auto& input : inputs()) widths.push_back(rows_at(input->shape, axis_)[1]);
    std::vector<Tensor> grads =
        split(grad_output.reshape(rows_at(grad_output.shape(), axis_)), widths);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      grads[i] = needs_grad(i) ? grads[i].reshape(inputs()[i]->shape) : Tensor();
    }
    return grads;
  }

 private:
  std::size_t axis_;
};

// The shape of what is joined; its dimension `axis` is the sum of theirs.
Shape joined_shape(const std::vector<Variable>& inputs, std::size_t axis) {
  Shape joined = inputs[0].shape();
  joined[axis] = 0;
  for (const Variable& x : inputs) {
    ops::require_defined("concat", "tensors", x);
    ops::require_same_dtype("concat", "tensors", inputs[0], x);
    Shape other = x.shape();
    if (other.size() == joined.size()) {
      joined[axis] += other[axis];
      other[axis] = joined[axis];
    }
    if (other != joined) {
      const bool last = axis + 1 == joined.size();
      ops::fail("concat",
                "shapes that differ in " +
                    (last ? "the last dimension" : "dimension " + std::to_string(axis)) + " only",
                shape_string(inputs[0].shape()) + " and " + shape_string(x.shape()));
    }
  }
  return joined;
}

}  // namespace

Variable concat(const std::vector<Variable>& inputs, std::int64_t axis) {
  if (inputs.empty()) ops::fail("concat", "at least one tensor", "none");
  ops::require_defined("concat", "tensors", inputs[0]);
  const auto rank = std::ssize(inputs[0].shape());
  if (axis < -rank || axis >= rank) {
    ops::fail("concat", "a dimension of " + shape_string(inputs[0].shape()), std::to_string(axis));
  }
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  const Shape shape = joined_shape(inputs, at);
  const Tensor y = Tensor::empty(rows_at(shape, at), inputs[0].dtype(), inputs[0].value().device());
  std::int64_t first = 0;
  for (const Variable& x : inputs) {
    const Tensor rows = x.value().reshape(rows_at(x.shape(), at));
    copy_columns(rows, 0, y, first, rows.dim(1));
    first += rows.dim(1);
  }
  if (!should_record(inputs)) return Variable(y.reshape(shape));
  return record(y.reshape(shape), std::make_shared<ConcatFunction>(at), inputs);
}

std::vector<Tensor> split(const Tensor& joined, const std::vector<std::int64_t>& widths) {
  ops::require_defined("split", "a tensor", joined);
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t width : widths) {
    parts.push_back(
        Tensor::empty(with_width(joined.shape(), width), joined.dtype(), joined.device()));
    copy_columns(joined, first, parts.back(), 0, width);
    first += width;
  }
  return parts;
}

}  // namespace steelyard
