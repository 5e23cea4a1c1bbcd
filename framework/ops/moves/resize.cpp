#include "steelyard/framework/ops/moves/resize.h"

#include <algorithm>
#include <array>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

using ResizedAxes = std::array<ResizedAxis, 2>;

// [outputs, inputs], or [inputs, outputs] for the gradient, as `like` is.
Variable weights_of(const ResizedAxis& axis, bool turned, const Variable& like) {
  const Variable weights(Tensor::from(axis.weights, {axis.outputs, axis.inputs})
                             .to(like.dtype())
                             .to(like.value().device()));
  return turned ? transpose(weights, 0, 1) : weights;
}

// Sums along the height (0) or the width (1).
Variable weighted(const Variable& x, std::size_t dimension, const Variable& weights) {
  return dimension == 0 ? permute(linear(permute(x, {0, 2, 3, 1}), weights, {}), {0, 3, 1, 2})
                        : permute(linear(permute(x, {0, 1, 3, 2}), weights, {}), {0, 1, 3, 2});
}

std::int64_t repeats_of(const ResizedAxis& axis) { return std::max<std::int64_t>(axis.repeats, 1); }

bool repeats(const ResizedAxes& axes) { return repeats_of(axes[0]) * repeats_of(axes[1]) > 1; }

Tensor resized(const Tensor& x, const ResizedAxes& axes) {
  const NoGradGuard no_grad;
  Variable y(repeats(axes) ? repeated(x, repeats_of(axes[0]), repeats_of(axes[1])) : x);
  for (std::size_t i = 0; i < 2; ++i) {
    if (axes[i].repeats == 0) y = weighted(y, i, weights_of(axes[i], /*turned=*/false, y));
  }
  return y.value();
}

class ResizeFunction : public Function, public Describes<ResizedAxes> {
 public:
  explicit ResizeFunction(ResizedAxes axes) : axes_(std::move(axes)) {}
  std::string name() const override { return "resize"; }
  ResizedAxes described() const override { return axes_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const NoGradGuard no_grad;
    Variable grad(grad_output);
    for (std::size_t i = 2; i-- > 0;) {
      if (axes_[i].repeats == 0) grad = weighted(grad, i, weights_of(axes_[i], true, grad));
    }
    if (!repeats(axes_)) return {grad.value()};
    return {repeated_gradient(grad.value(), repeats_of(axes_[0]), repeats_of(axes_[1]))};
  }

 private:
  ResizedAxes axes_;
};

}  // namespace

Tensor repeated(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  ops::require_defined("resize", "images", x);
  if (x.rank() != 4 || rows < 1 || columns < 1) {
    ops::fail(
        "resize", "images [N, H, W, C] and at least one of each row and column",
        shape_string(x.shape()) + " and " + std::to_string(rows) + " x " + std::to_string(columns));
  }
  const std::int64_t n = x.dim(0), height = x.dim(1), width = x.dim(2), channels = x.dim(3);
  const ops::Part part{.shape = {n, height, rows, width, columns, channels},
                       .strides = {height * width * channels, width * channels, 0, channels, 0, 1}};
  return ops::gathered("resize", x, part).reshape({n, height * rows, width * columns, channels});
}

Tensor repeated_gradient(const Tensor& grad, std::int64_t rows, std::int64_t columns) {
  ops::require_defined("resize", "a gradient", grad);
  const NoGradGuard no_grad;
  const Variable apart = reshape(Variable(grad), {grad.dim(0), grad.dim(1) / rows, rows,
                                                  grad.dim(2) / columns, columns, grad.dim(3)});
  return sum(apart, {2, 4}).value();
}

Variable resize(const Variable& x, const ResizedAxis& height, const ResizedAxis& width) {
  ops::require_defined("resize", "images", x);
  if (height.repeats < 0 || width.repeats < 0) {
    ops::fail("resize", "repeats of at least 0",
              std::to_string(height.repeats) + " x " + std::to_string(width.repeats));
  }
  const auto fits = [&](const ResizedAxis& axis, std::int64_t dimension) {
    return axis.repeats > 0 || x.dim(dimension) == axis.inputs;
  };
  if (x.shape().size() != 4 || !fits(height, 1) || !fits(width, 2)) {
    const auto size = [](const ResizedAxis& axis) {
      return axis.repeats > 0 ? std::string("any size") : std::to_string(axis.inputs);
    };
    ops::fail("resize", "images of " + size(height) + " x " + size(width), shape_string(x.shape()));
  }
  const ResizedAxes axes{height, width};
  Tensor y = resized(x.value(), axes);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ResizeFunction>(axes), {x});
}

}  // namespace steelyard
