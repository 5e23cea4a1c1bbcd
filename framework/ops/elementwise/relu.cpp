#include "steelyard/framework/ops/elementwise/relu.h"

#include <limits>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

constexpr double kNoCeiling = std::numeric_limits<double>::infinity();
constexpr double kRelu6Ceiling = 6.0;

const char* op_name(double ceiling) { return ceiling == kRelu6Ceiling ? "relu6" : "relu"; }

class ReluFunction : public Function {
 public:
  ReluFunction(double ceiling, Tensor y) : ceiling_(ceiling) { save(std::move(y)); }

  std::string name() const override { return op_name(ceiling_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& y = saved()[0];
    Tensor grad_x = Tensor::empty(y.shape(), y.dtype(), y.device());
    visit_floating(y.dtype(), op_name(ceiling_), [&](auto zero) {
      using T = decltype(zero);
      run(y.device(), kernels::ReluBackward<T>{.n = y.size(),
                                               .y = y.data<T>(),
                                               .grad_y = grad_output.data<T>(),
                                               .ceiling = static_cast<T>(ceiling_),
                                               .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  double ceiling_;
};

Variable clamped_relu(const Variable& x, double ceiling) {
  ops::require_defined(op_name(ceiling), "a tensor", x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.value().device());
  visit_floating(x.dtype(), op_name(ceiling), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Relu<T>{.n = y.size(),
                                     .x = x.value().data<T>(),
                                     .ceiling = static_cast<T>(ceiling),
                                     .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ReluFunction>(ceiling, y), {x});
}

class ClampFunction : public Function, public Describes<Bounds> {
 public:
  ClampFunction(double lo, double hi, Tensor x) : lo_(lo), hi_(hi) { save(std::move(x)); }

  std::string name() const override { return "clamp"; }
  Bounds described() const override { return {lo_, hi_}; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), "clamp", [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::ClampBackward<T>{.n = x.size(),
                                                .x = x.data<T>(),
                                                .grad_y = grad_output.data<T>(),
                                                .lo = static_cast<T>(lo_),
                                                .hi = static_cast<T>(hi_),
                                                .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  double lo_, hi_;
};

}  // namespace

Variable relu(const Variable& x) { return clamped_relu(x, kNoCeiling); }
Variable relu6(const Variable& x) { return clamped_relu(x, kRelu6Ceiling); }

Variable clamp(const Variable& x, double lo, double hi) {
  ops::require_defined("clamp", "a tensor", x);
  if (!(lo <= hi)) {
    ops::fail("clamp", "lo <= hi", ops::number_text(lo) + " and " + ops::number_text(hi));
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.value().device());
  visit_floating(x.dtype(), "clamp", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Clamp<T>{.n = y.size(),
                                      .x = x.value().data<T>(),
                                      .lo = static_cast<T>(lo),
                                      .hi = static_cast<T>(hi),
                                      .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ClampFunction>(lo, hi, x.value()), {x});
}

}  // namespace steelyard
