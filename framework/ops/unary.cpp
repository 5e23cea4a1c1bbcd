#include "steelyard/framework/ops/unary.h"

#include "steelyard/framework/describes.h"
#include "steelyard/framework/ops/op_support.h"

namespace steelyard {
namespace {

using kernels::UnaryFunction;

const char* op_name(UnaryFunction function) { return row_in(kUnaryNames, function).operation; }

// Described by its exponent.
class UnaryOperation : public Function, public Describes<double> {
 public:
  UnaryOperation(UnaryFunction function, double exponent, Tensor x)
      : function_(function), exponent_(exponent) {
    save(std::move(x));
  }
  double described() const override { return exponent_; }

  std::string name() const override { return op_name(function_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op_name(function_), [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::UnaryBackward<T>{.n = x.size(),
                                                .function = function_,
                                                .exponent = static_cast<T>(exponent_),
                                                .x = x.data<T>(),
                                                .grad_y = grad_output.data<T>(),
                                                .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  UnaryFunction function_;
  double exponent_;
};

}  // namespace

Variable apply_unary(UnaryFunction function, const Variable& x, double exponent) {
  ops::require_defined(op_name(function), "a tensor", x);
  const Tensor& value = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), value.device());
  visit_floating(x.dtype(), op_name(function), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Unary<T>{.n = y.size(),
                                      .function = function,
                                      .exponent = static_cast<T>(exponent),
                                      .x = value.data<T>(),
                                      .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<UnaryOperation>(function, exponent, value), {x});
}

Variable sqrt(const Variable& x) { return apply_unary(UnaryFunction::kSqrt, x); }
Variable exp(const Variable& x) { return apply_unary(UnaryFunction::kExp, x); }
Variable log(const Variable& x) { return apply_unary(UnaryFunction::kLog, x); }
Variable abs(const Variable& x) { return apply_unary(UnaryFunction::kAbs, x); }
Variable erf(const Variable& x) { return apply_unary(UnaryFunction::kErf, x); }
Variable tanh(const Variable& x) { return apply_unary(UnaryFunction::kTanh, x); }
Variable pow(const Variable& x, double exponent) {
  return apply_unary(UnaryFunction::kPower, x, exponent);
}

}  // namespace steelyard
