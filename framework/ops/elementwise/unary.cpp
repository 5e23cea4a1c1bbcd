#include "steelyard/framework/ops/elementwise/unary.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

using kernels::UnaryFunction;

const char* op_name(UnaryFunction function) { return row_in(kUnaryNames, function).operation; }

// Described by its parameter: the exponent of pow(), alpha of elu().
class UnaryOperation : public Function, public Describes<double> {
 public:
  UnaryOperation(UnaryFunction function, double parameter, Tensor x)
      : function_(function), parameter_(parameter) {
    save(std::move(x));
  }
  double described() const override { return parameter_; }

  std::string name() const override { return op_name(function_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op_name(function_), [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::UnaryBackward<T>{.n = x.size(),
                                                .function = function_,
                                                .parameter = static_cast<T>(parameter_),
                                                .x = x.data<T>(),
                                                .grad_y = grad_output.data<T>(),
                                                .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  UnaryFunction function_;
  double parameter_;
};

}  // namespace

Variable apply_unary(UnaryFunction function, const Variable& x, double parameter) {
  ops::require_defined(op_name(function), "a tensor", x);
  const Tensor& value = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), value.device());
  visit_floating(x.dtype(), op_name(function), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Unary<T>{.n = y.size(),
                                      .function = function,
                                      .parameter = static_cast<T>(parameter),
                                      .x = value.data<T>(),
                                      .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<UnaryOperation>(function, parameter, value), {x});
}

Variable sqrt(const Variable& x) { return apply_unary(UnaryFunction::kSqrt, x); }
Variable exp(const Variable& x) { return apply_unary(UnaryFunction::kExp, x); }
Variable log(const Variable& x) { return apply_unary(UnaryFunction::kLog, x); }
Variable abs(const Variable& x) { return apply_unary(UnaryFunction::kAbs, x); }
Variable erf(const Variable& x) { return apply_unary(UnaryFunction::kErf, x); }
Variable tanh(const Variable& x) { return apply_unary(UnaryFunction::kTanh, x); }
Variable sin(const Variable& x) { return apply_unary(UnaryFunction::kSin, x); }
Variable cos(const Variable& x) { return apply_unary(UnaryFunction::kCos, x); }
Variable softplus(const Variable& x) { return apply_unary(UnaryFunction::kSoftplus, x); }
Variable elu(const Variable& x, double alpha) { return apply_unary(UnaryFunction::kElu, x, alpha); }
Variable sign(const Variable& x) { return apply_unary(UnaryFunction::kSign, x); }
Variable floor(const Variable& x) { return apply_unary(UnaryFunction::kFloor, x); }
Variable ceil(const Variable& x) { return apply_unary(UnaryFunction::kCeil, x); }
Variable round(const Variable& x) { return apply_unary(UnaryFunction::kRound, x); }
Variable pow(const Variable& x, double exponent) {
  return apply_unary(UnaryFunction::kPower, x, exponent);
}

}  // namespace steelyard
