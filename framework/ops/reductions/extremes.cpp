#include "steelyard/framework/ops/reductions/extremes.h"

#include "steelyard/framework/ops/elementwise/combine.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

// --- of two operands

const char* pair_name(bool largest) { return largest ? "maximum" : "minimum"; }

class ExtremeFunction : public Function {
 public:
  ExtremeFunction(bool largest, Tensor a, Tensor b) : largest_(largest) {
    save(std::move(a));
    save(std::move(b));
  }
  std::string name() const override { return pair_name(largest_); }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!needs_grad(i)) continue;
      const Tensor& own = saved()[i];
      grads[i] =
          ops::summed_to(pair_name(largest_), share(own, saved()[1 - i], grad_output), own.shape());
    }
    return grads;
  }

 private:
  // What reaches an operand, before it is summed over what was repeated.
  Tensor share(const Tensor& own, const Tensor& other, const Tensor& grad_output) const {
    const char* op = pair_name(largest_);
    const Shape& shape = grad_output.shape();
    Tensor grad = Tensor::empty(shape, own.dtype(), own.device());
    visit_floating(own.dtype(), op, [&](auto zero) {
      using T = decltype(zero);
      run(own.device(),
          kernels::ShareOfExtreme<T>{.n = grad.size(),
                                     .largest = largest_,
                                     .a = own.data<T>(),
                                     .at_a = ops::broadcast_index(op, own.shape(), shape),
                                     .b = other.data<T>(),
                                     .at_b = ops::broadcast_index(op, other.shape(), shape),
                                     .grad_y = grad_output.data<T>(),
                                     .grad_a = grad.data<T>()});
    });
    return grad;
  }

  bool largest_;
};

Variable extreme(const Variable& a, const Variable& b, bool largest) {
  const char* op = pair_name(largest);
  ops::require_defined(op, "two operands", a);
  ops::require_defined(op, "two operands", b);
  ops::require_same_dtype(op, "second operand", a, b);
  Tensor y = largest ? ops::combine<kernels::Largest>(op, a.value(), b.value())
                     : ops::combine<kernels::Smallest>(op, a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<ExtremeFunction>(largest, a.value(), b.value()), {a, b});
}

// --- along axes

const char* axes_name(bool largest) { return largest ? "amax" : "amin"; }

// How a reduction walks over x.
struct Walk {
  Walk(const char* op, const Shape& shape, const std::vector<bool>& marked) {
    const auto [kept, reduced] = ops::kept_and_reduced(shape, marked);
    const std::vector<std::int64_t> strides = ops::row_major_strides(shape);
    kept_shape = kept;
    at_kept = ops::strided_index(op, kept, strides);
    at_reduced = ops::strided_index(op, reduced, strides);
    count = shape_size(reduced);
  }
  Shape kept_shape;
  kernels::StridedIndex at_kept, at_reduced;
  std::int64_t count = 0;
};

class ExtremeOfAxesFunction : public Function, public Describes<std::vector<std::int64_t>> {
 public:
  ExtremeOfAxesFunction(bool largest, std::vector<std::int64_t> axes, Tensor x, Tensor y)
      : largest_(largest), axes_(std::move(axes)) {
    save(std::move(x));
    save(std::move(y));
  }
  std::string name() const override { return axes_name(largest_); }
  std::vector<std::int64_t> described() const override { return axes_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor &x = saved()[0], &y = saved()[1];
    const char* op = axes_name(largest_);
    const Walk walk(op, x.shape(), ops::marked_axes(op, x.shape(), axes_));
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op, [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::ExtremeOverAxesBackward<T>{.n = y.size(),
                                                          .x = x.data<T>(),
                                                          .kept = walk.at_kept,
                                                          .count = walk.count,
                                                          .reduced = walk.at_reduced,
                                                          .y = y.data<T>(),
                                                          .grad_y = grad_output.data<T>(),
                                                          .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  bool largest_;
  std::vector<std::int64_t> axes_;  // counted from 0, ascending
};

Variable extreme_of(const Variable& x, const std::vector<std::int64_t>& axes, ReducedAxes reduced,
                    bool largest) {
  const char* op = axes_name(largest);
  ops::require_defined(op, "a tensor", x);
  const std::vector<bool> marked = ops::marked_axes(op, x.shape(), axes);
  const Walk walk(op, x.shape(), marked);
  if (axes.empty() || walk.count == 0) {
    ops::fail(op, "axes with elements", shape_string(axes) + " of " + shape_string(x.shape()));
  }
  Shape shape;
  std::vector<std::int64_t> ascending;
  for (std::size_t axis = 0; axis < marked.size(); ++axis) {
    if (!marked[axis] || reduced == ReducedAxes::kKeep) shape.push_back(walk.kept_shape[axis]);
    if (marked[axis]) ascending.push_back(static_cast<std::int64_t>(axis));
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.value().device());
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::ExtremeOverAxes<T>{.n = y.size(),
                                                .largest = largest,
                                                .x = x.value().data<T>(),
                                                .kept = walk.at_kept,
                                                .count = walk.count,
                                                .reduced = walk.at_reduced,
                                                .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ExtremeOfAxesFunction>(largest, ascending, x.value(), y), {x});
}

}  // namespace

Variable maximum(const Variable& a, const Variable& b) { return extreme(a, b, true); }
Variable minimum(const Variable& a, const Variable& b) { return extreme(a, b, false); }

Variable amax(const Variable& x, const std::vector<std::int64_t>& axes, ReducedAxes reduced) {
  return extreme_of(x, axes, reduced, true);
}
Variable amin(const Variable& x, const std::vector<std::int64_t>& axes, ReducedAxes reduced) {
  return extreme_of(x, axes, reduced, false);
}

}  // namespace steelyard
