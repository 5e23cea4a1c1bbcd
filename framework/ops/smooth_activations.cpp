#include "steelyard/framework/ops/smooth_activations.h"

#include "steelyard/framework/describes.h"
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
    case SmoothActivation::kTanhGelu:
      return "tanh_gelu";
    case SmoothActivation::kSilu:
      return "silu";
    case SmoothActivation::kHardswish:
      return "hardswish";
    case SmoothActivation::kHardSigmoid:
      return "hard_sigmoid";
    case SmoothActivation::kAffine:
      return "affine";
    case SmoothActivation::kLeakyRelu:
      return "leaky_relu";
  }
  return "unknown";
}

class SmoothActivationFunction : public Function, public Describes<kernels::Ramp> {
 public:
  SmoothActivationFunction(SmoothActivation activation, const kernels::Ramp& ramp, Tensor x)
      : activation_(activation), ramp_(ramp) {
    save(std::move(x));
  }
  kernels::Ramp described() const override { return ramp_; }

  std::string name() const override { return op_name(activation_); }
  Attributes attributes() const override {
    Attributes line{{"slope", ops::number_text(ramp_.slope)}};
    if (activation_ == SmoothActivation::kLeakyRelu) return line;
    const bool has_ramp =
        activation_ == SmoothActivation::kHardSigmoid || activation_ == SmoothActivation::kAffine;
    if (!has_ramp) return {};
    line.push_back({"offset", ops::number_text(ramp_.offset)});
    return line;
  }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    Tensor grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    visit_floating(x.dtype(), op_name(activation_), [&](auto zero) {
      using T = decltype(zero);
      run(x.device(), kernels::ActivateBackward<T>{.n = x.size(),
                                                   .activation = activation_,
                                                   .x = x.data<T>(),
                                                   .grad_y = grad_output.data<T>(),
                                                   .grad_x = grad_x.data<T>(),
                                                   .ramp = ramp_});
    });
    return {grad_x};
  }

 private:
  SmoothActivation activation_;
  kernels::Ramp ramp_;
};

}  // namespace

Variable smooth_activation(SmoothActivation activation, const Variable& x,
                           const kernels::Ramp& ramp) {
  ops::require_defined(op_name(activation), "a tensor", x);
  const Tensor& value = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), value.device());
  visit_floating(x.dtype(), op_name(activation), [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Activate<T>{.n = y.size(),
                                         .activation = activation,
                                         .x = value.data<T>(),
                                         .y = y.data<T>(),
                                         .ramp = ramp});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SmoothActivationFunction>(activation, ramp, value), {x});
}

Variable sigmoid(const Variable& x) { return smooth_activation(SmoothActivation::kSigmoid, x); }
Variable gelu(const Variable& x) { return smooth_activation(SmoothActivation::kGelu, x); }
Variable tanh_gelu(const Variable& x) { return smooth_activation(SmoothActivation::kTanhGelu, x); }
Variable silu(const Variable& x) { return smooth_activation(SmoothActivation::kSilu, x); }
Variable hardswish(const Variable& x) { return smooth_activation(SmoothActivation::kHardswish, x); }
Variable hard_sigmoid(const Variable& x, double slope, double offset) {
  return smooth_activation(SmoothActivation::kHardSigmoid, x, {slope, offset});
}
Variable leaky_relu(const Variable& x, double slope) {
  return smooth_activation(SmoothActivation::kLeakyRelu, x, {.slope = slope});
}
Variable affine(const Variable& x, double slope, double offset) {
  return smooth_activation(SmoothActivation::kAffine, x, {slope, offset});
}

}  // namespace steelyard
