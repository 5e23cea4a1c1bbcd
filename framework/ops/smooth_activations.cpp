#include "steelyard/framework/ops/smooth_activations.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/activation/activation.h"

namespace steelyard {
namespace {

using kernels::SmoothActivation;

const char* op_name(SmoothActivation activation) {
  switch (activation) {
    case SmoothActivation::kSigmoid:
      return "sigmoid";
    case SmoothActivation::kGelu:
      return "gelu";
    case SmoothActivation::kSilu:
      return "silu";
    case SmoothActivation::kHardswish:
      return "hardswish";
  }
  return "unknown";
}

class SmoothActivationFunction : public Function {
 public:
  SmoothActivationFunction(SmoothActivation activation, Tensor x) : activation_(activation) {
    save(std::move(x));
  }

  std::string name() const override { return op_name(activation_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op_name(activation_), [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::ActivateBackward<T>{.n = x.size(),
                                                   .activation = activation_,
                                                   .x = x.data<T>(),
                                                   .grad_y = grad_output.data<T>(),
                                                   .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  SmoothActivation activation_;
};

Variable apply(SmoothActivation activation, const Variable& x) {
  ops::require_defined(op_name(activation), "a tensor", x);
  const Tensor& value = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), value.device());
  visit_floating(x.dtype(), op_name(activation), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Activate<T>{
            .n = y.size(), .activation = activation, .x = value.data<T>(), .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SmoothActivationFunction>(activation, value), {x});
}

}  // namespace

Variable sigmoid(const Variable& x) { return apply(SmoothActivation::kSigmoid, x); }
Variable gelu(const Variable& x) { return apply(SmoothActivation::kGelu, x); }
Variable silu(const Variable& x) { return apply(SmoothActivation::kSilu, x); }
Variable hardswish(const Variable& x) { return apply(SmoothActivation::kHardswish, x); }

}  // namespace steelyard
