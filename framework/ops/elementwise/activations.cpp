#include "steelyard/framework/ops/elementwise/activations.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/activation/activation.h"

namespace steelyard {
namespace {

using kernels::ActivationFunction;

const char* op_name(ActivationFunction activation) {
  return row_in(kActivationNames, activation).operation;
}

class ActivateFunction : public Function, public Describes<kernels::Ramp> {
 public:
  ActivateFunction(ActivationFunction activation, const kernels::Ramp& ramp, Tensor x)
      : activation_(activation), ramp_(ramp) {
    save(std::move(x));
  }
  kernels::Ramp described() const override { return ramp_; }

  std::string name() const override { return op_name(activation_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op_name(activation_), [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::ActivateBackward<T>{.n = x.size(),
                                                   .function = activation_,
                                                   .x = x.data<T>(),
                                                   .grad_y = grad_output.data<T>(),
                                                   .grad_x = grad_x.data<T>(),
                                                   .ramp = ramp_});
    });
    return {grad_x};
  }

 private:
  ActivationFunction activation_;
  kernels::Ramp ramp_;
};

}  // namespace

Variable activate(ActivationFunction activation, const Variable& x, const kernels::Ramp& ramp) {
  ops::require_defined(op_name(activation), "a tensor", x);
  const Tensor& value = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), value.device());
  visit_floating(x.dtype(), op_name(activation), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Activate<T>{.n = y.size(),
                                         .function = activation,
                                         .x = value.data<T>(),
                                         .y = y.data<T>(),
                                         .ramp = ramp});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ActivateFunction>(activation, ramp, value), {x});
}

Variable sigmoid(const Variable& x) { return activate(ActivationFunction::kSigmoid, x); }
Variable gelu(const Variable& x) { return activate(ActivationFunction::kGelu, x); }
Variable tanh_gelu(const Variable& x) { return activate(ActivationFunction::kTanhGelu, x); }
Variable silu(const Variable& x) { return activate(ActivationFunction::kSilu, x); }
Variable hardswish(const Variable& x) { return activate(ActivationFunction::kHardswish, x); }
Variable hard_sigmoid(const Variable& x, double slope, double offset) {
  return activate(ActivationFunction::kHardSigmoid, x, {slope, offset});
}
Variable leaky_relu(const Variable& x, double slope) {
  return activate(ActivationFunction::kLeakyRelu, x, {.slope = slope});
}
Variable affine(const Variable& x, double slope, double offset) {
  return activate(ActivationFunction::kAffine, x, {slope, offset});
}

}  // namespace steelyard
