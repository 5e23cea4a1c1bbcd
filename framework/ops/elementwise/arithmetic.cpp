#include "steelyard/framework/ops/elementwise/arithmetic.h"

#include <algorithm>
#include <numeric>

#include "steelyard/framework/ops/elementwise/combine.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

Tensor scaled(const char* op, const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(x.device(),
        kernels::Scale<T>{
            .n = x.size(), .x = x.data<T>(), .factor = static_cast<T>(factor), .y = y.data<T>()});
  });
  return y;
}

// An operation of two operands, whose gradients before they are summed to the operands' shapes a
// subclass computes.
class PairFunction : public Function {
 public:
  explicit PairFunction(const char* name) : name_(name) {}
  std::string name() const override { return name_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (needs_grad(i)) {
        grads[i] = ops::summed_to(name_, gradient(i, grad_output), inputs()[i]->shape);
      }
    }
    return grads;
  }

 protected:
  virtual Tensor gradient(std::size_t input, const Tensor& grad_output) const = 0;
  const char* op() const { return name_; }

 private:
  const char* name_;
};

// a + sign * b.
class SumFunction : public PairFunction {
 public:
  SumFunction(const char* name, double sign) : PairFunction(name), sign_(sign) {}

 private:
  Tensor gradient(std::size_t input, const Tensor& grad_output) const override {
    return input == 0 || sign_ == 1 ? grad_output : scaled(op(), grad_output, sign_);
  }
  double sign_;
};

class MultiplyFunction : public PairFunction {
 public:
  // Each operand is kept for the other's gradient.
  MultiplyFunction(const Variable& a, const Variable& b) : PairFunction("mul") {
    save(b.requires_grad() ? a.value() : Tensor());
    save(a.requires_grad() ? b.value() : Tensor());
  }

 private:
  Tensor gradient(std::size_t input, const Tensor& grad_output) const override {
    return ops::combine<kernels::Product>(op(), grad_output, saved()[1 - input]);
  }
};

template <class Q>
class DivideFunction : public PairFunction {
 public:
  DivideFunction(const char* name, const Variable& b, const Tensor& y) : PairFunction(name) {
    save(b.value());
    save(b.requires_grad() ? y : Tensor());
  }

 private:
  // y = a / b: dy/da = 1 / b, dy/db = -y / b.
  Tensor gradient(std::size_t input, const Tensor& grad_output) const override {
    const Tensor by_b = ops::combine<Q>(op(), grad_output, saved()[0]);
    if (input == 0) return by_b;
    return scaled(op(), ops::combine<kernels::Product>(op(), by_b, saved()[1]), -1);
  }
};

Tensor chosen(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape = ops::broadcast_shape(
      "where", ops::broadcast_shape("where", a.shape(), b.shape()), condition.shape());
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  visit_floating(a.dtype(), "where", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Choose<T>{.n = y.size(),
                           .condition = static_cast<const std::uint8_t*>(condition.raw()),
                           .at_condition = ops::broadcast_index("where", condition.shape(), shape),
                           .a = a.data<T>(),
                           .at_a = ops::broadcast_index("where", a.shape(), shape),
                           .b = b.data<T>(),
                           .at_b = ops::broadcast_index("where", b.shape(), shape),
                           .y = y.data<T>()});
  });
  return y;
}

class WhereFunction : public PairFunction {
 public:
  explicit WhereFunction(Tensor condition) : PairFunction("where") { save(std::move(condition)); }

 private:
  Tensor gradient(std::size_t input, const Tensor& grad_output) const override {
    const Tensor none = Tensor::zeros({}, grad_output.dtype(), grad_output.device());
    return input == 0 ? chosen(saved()[0], grad_output, none)
                      : chosen(saved()[0], none, grad_output);
  }
};

class SumAxesFunction : public Function, public Describes<std::vector<std::int64_t>> {
 public:
  // `kept`: the shape of the sum with summed axes of size 1.
  SumAxesFunction(Shape kept, std::vector<std::int64_t> axes)
      : kept_(std::move(kept)), axes_(std::move(axes)) {}
  std::string name() const override { return "sum"; }
  std::vector<std::int64_t> described() const override { return axes_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor none = Tensor::zeros({}, grad_output.dtype(), grad_output.device());
    const Tensor zeros =
        Tensor::zeros(inputs()[0]->shape, grad_output.dtype(), grad_output.device());
    return {ops::combine<kernels::Total>("sum", grad_output.reshape(kept_), zeros)};
  }

 private:
  Shape kept_;
  std::vector<std::int64_t> axes_;  // counted from 0, ascending
};

void require_pair(const char* op, const Variable& a, const Variable& b) {
  ops::require_defined(op, "two operands", a);
  ops::require_defined(op, "two operands", b);
  ops::require_same_dtype(op, "second operand", a, b);
  if (a.value().device() != b.value().device()) {
    ops::fail(op, "operands on one device",
              device_name(a.value().device()) + " and " + device_name(b.value().device()));
  }
}

Tensor compared(const char* op, const Variable& a, const Variable& b, bool or_equal) {
  require_pair(op, a, b);
  Tensor holds = Tensor::empty(ops::broadcast_shape(op, a.shape(), b.shape()), DType::kBool,
                               a.value().device());
  visit_floating(a.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(holds.device(),
        kernels::IsGreater<T>{.n = holds.size(),
                              .a = a.value().data<T>(),
                              .at_a = ops::broadcast_index(op, a.shape(), holds.shape()),
                              .b = b.value().data<T>(),
                              .at_b = ops::broadcast_index(op, b.shape(), holds.shape()),
                              .or_equal = or_equal,
                              .holds = static_cast<std::uint8_t*>(holds.raw())});
  });
  return holds;
}

template <class Q>
Variable quotient(const char* op, const Variable& a, const Variable& b) {
  require_pair(op, a, b);
  Tensor y = ops::combine<Q>(op, a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<DivideFunction<Q>>(op, b, y), {a, b});
}

std::vector<std::int64_t> all_axes(const Variable& x) {
  std::vector<std::int64_t> axes(x.shape().size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  require_pair("add", a, b);
  if (a.shape() != b.shape()) {
    ops::fail("add", "equal shapes", shape_string(a.shape()) + " and " + shape_string(b.shape()));
  }
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.value().device());
  visit_floating(a.dtype(), "add", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Add<T>{
            .n = y.size(), .a = a.value().data<T>(), .b = b.value().data<T>(), .y = y.data<T>()});
  });
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<SumFunction>("add", 1), {a, b});
}

Variable broadcast_add(const Variable& a, const Variable& b) {
  require_pair("add", a, b);
  if (a.shape() == b.shape()) return add(a, b);
  Tensor y = ops::combine<kernels::Total>("add", a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<SumFunction>("add", 1), {a, b});
}

Variable subtract(const Variable& a, const Variable& b) {
  require_pair("sub", a, b);
  Tensor y = ops::combine<kernels::Difference>("sub", a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<SumFunction>("sub", -1), {a, b});
}

Variable multiply(const Variable& a, const Variable& b) {
  require_pair("mul", a, b);
  Tensor y = ops::combine<kernels::Product>("mul", a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<MultiplyFunction>(a, b), {a, b});
}

Variable divide(const Variable& a, const Variable& b) {
  return quotient<kernels::Quotient>("div", a, b);
}

Variable divide_no_nan(const Variable& a, const Variable& b) {
  return quotient<kernels::QuotientOrZero>("div_no_nan", a, b);
}

Variable constant(double value, const Variable& like) {
  ops::require_defined("constant", "an operand", like);
  return Variable(Tensor::full({}, value, like.dtype(), like.value().device()));
}

Tensor operator>(const Variable& a, const Variable& b) { return compared("greater", a, b, false); }
Tensor operator>=(const Variable& a, const Variable& b) {
  return compared("greater_equal", a, b, true);
}

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  require_pair("where", a, b);
  ops::require_defined("where", "a condition", condition);
  if (condition.dtype() != DType::kBool || condition.device() != a.value().device()) {
    ops::fail(
        "where", "a condition of dtype bool on " + device_name(a.value().device()),
        std::string(dtype_name(condition.dtype())) + " on " + device_name(condition.device()));
  }
  Tensor y = chosen(condition, a.value(), b.value());
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<WhereFunction>(condition), {a, b});
}

Variable sum(const Variable& x, std::vector<std::int64_t> axes, ReducedAxes reduced) {
  ops::require_defined("sum", "a tensor", x);
  const std::vector<bool> summed = ops::marked_axes("sum", x.shape(), axes);
  const Tensor kept = ops::sum_over("sum", x.value(), summed);
  Shape shape;
  axes.clear();
  for (std::size_t axis = 0; axis < summed.size(); ++axis) {
    if (!summed[axis] || reduced == ReducedAxes::kKeep) shape.push_back(kept.shape()[axis]);
    if (summed[axis]) axes.push_back(static_cast<std::int64_t>(axis));
  }
  const Tensor y = kept.reshape(shape);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SumAxesFunction>(kept.shape(), axes), {x});
}

Variable sum(const Variable& x) {
  ops::require_defined("sum", "a tensor", x);
  return sum(x, all_axes(x));
}

Variable mean(const Variable& x, const std::vector<std::int64_t>& axes, ReducedAxes reduced) {
  const Variable total = sum(x, axes, reduced);
  const std::int64_t count = x.value().size() / std::max<std::int64_t>(total.value().size(), 1);
  if (x.value().size() == 0) ops::fail("mean", "at least one element", shape_string(x.shape()));
  return total / static_cast<double>(count);
}

Variable mean(const Variable& x) {
  ops::require_defined("mean", "a tensor", x);
  return mean(x, all_axes(x));
}

}  // namespace steelyard
