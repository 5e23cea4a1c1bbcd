#include "steelyard/framework/ops/concat.h"

#include "steelyard/framework/ops/op_support.h"
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

class ConcatFunction : public Function {
 public:
  std::string name() const override { return "concat"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<std::int64_t> widths;
    for (const auto& input : inputs()) widths.push_back(input->shape.back());
    std::vector<Tensor> grads = split(grad_output, widths);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!needs_grad(i)) grads[i] = Tensor();
    }
    return grads;
  }
};

std::int64_t joined_width(const std::vector<Variable>& inputs) {
  if (inputs.empty()) ops::fail("concat", "at least one tensor", "none");
  std::int64_t width = 0;
  for (const Variable& x : inputs) {
    ops::require_defined("concat", "tensors", x);
    ops::require_same_dtype("concat", "tensors", inputs[0], x);
    if (x.shape().empty() || with_width(x.shape(), 0) != with_width(inputs[0].shape(), 0)) {
      ops::fail("concat", "shapes that differ in the last dimension only",
                shape_string(inputs[0].shape()) + " and " + shape_string(x.shape()));
    }
    width += x.dim(-1);
  }
  return width;
}

}  // namespace

Variable concat(const std::vector<Variable>& inputs) {
  const std::int64_t width = joined_width(inputs);
  const Tensor y = Tensor::empty(with_width(inputs[0].shape(), width), inputs[0].dtype(),
                                 inputs[0].value().device());
  std::int64_t first = 0;
  for (const Variable& x : inputs) {
    copy_columns(x.value(), 0, y, first, x.dim(-1));
    first += x.dim(-1);
  }
  if (!should_record(inputs)) return Variable(y);
  return record(y, std::make_shared<ConcatFunction>(), inputs);
}

std::vector<Tensor> split(const Tensor& joined, const std::vector<std::int64_t>& widths) {
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
