// Parts that the losses share: the gradient is computed together with the loss.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::ops {

// grad * factor, a tensor of one element: the gradient itself where the host can see that it is 1.
inline Tensor scaled_gradient(const Tensor& grad, const Tensor& factor) {
  if (factor.device().kind == Device::Kind::kCpu && factor.item() == 1) return grad;
  Tensor scaled = Tensor::empty(grad.shape(), grad.dtype(), grad.device());
  visit_floating(grad.dtype(), "loss", [&](auto zero) {
    using T = decltype(zero);
    run(grad.device(), kernels::ScaleBy<T>{.n = grad.size(),
                                           .x = grad.data<T>(),
                                           .factor = factor.data<T>(),
                                           .y = scaled.data<T>()});
  });
  return scaled;
}

// A scalar loss whose gradient with respect to its only input was computed with it.
class LossFunction : public Function {
 public:
  LossFunction(std::string name, Tensor grad) : name_(std::move(name)) { save(std::move(grad)); }

  std::string name() const override { return name_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {scaled_gradient(saved()[0], grad_output)};
  }

 private:
  std::string name_;
};

// The tensor to which a loss writes its gradient; undefined if no gradient is needed.
inline Tensor gradient_buffer(const Variable& x) {
  if (!should_record({x})) return {};
  return Tensor::empty(x.shape(), x.dtype(), x.value().device());
}

}  // namespace steelyard::ops
