#include "steelyard/framework/ops/elementwise/swiglu.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/swiglu/swiglu.h"

namespace steelyard {
namespace {

class SwiGluFunction : public Function {
 public:
  SwiGluFunction(Tensor gate, Tensor up) {
    save(std::move(gate));
    save(std::move(up));
  }

  std::string name() const override { return "swiglu"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor &gate = saved()[0], &up = saved()[1];
    std::vector<Tensor> grads(2);
    for (Tensor& grad : grads) grad = Tensor::empty(gate.shape(), gate.dtype(), gate.device());
    visit_floating(gate.dtype(), "swiglu", [&](auto zero) {
      using T = decltype(zero);
      run(gate.device(), kernels::SwiGluBackward<T>{.n = gate.size(),
                                                    .gate = gate.data<T>(),
                                                    .up = up.data<T>(),
                                                    .grad_y = grad_output.data<T>(),
                                                    .grad_gate = grads[0].data<T>(),
                                                    .grad_up = grads[1].data<T>()});
    });
    for (std::size_t i = 0; i < 2; ++i) {
      if (!needs_grad(i)) grads[i] = Tensor();
    }
    return grads;
  }
};

}  // namespace

Variable swiglu(const Variable& gate, const Variable& up) {
  ops::require_defined("swiglu", "a gate", gate);
  ops::require_defined("swiglu", "a second tensor", up);
  if (gate.shape() != up.shape()) {
    ops::fail("swiglu", "two tensors of one shape, as the gate's " + shape_string(gate.shape()),
              shape_string(up.shape()));
  }
  ops::require_same_dtype("swiglu", "a second tensor", gate, up);
  Tensor y = Tensor::empty(gate.shape(), gate.dtype(), gate.value().device());
  visit_floating(gate.dtype(), "swiglu", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::SwiGlu<T>{.n = y.size(),
                                       .gate = gate.value().data<T>(),
                                       .up = up.value().data<T>(),
                                       .y = y.data<T>()});
  });
  if (!should_record({gate, up})) return Variable(y);
  return record(y, std::make_shared<SwiGluFunction>(gate.value(), up.value()), {gate, up});
}

}  // namespace steelyard
