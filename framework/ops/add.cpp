#include "steelyard/framework/ops/add.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

class AddFunction : public Function {
 public:
  std::string name() const override { return "add"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (needs_grad(i)) grads[i] = grad_output;
    }
    return grads;
  }
};

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  ops::require_defined("add", "two tensors", a);
  ops::require_defined("add", "two tensors", b);
  if (a.shape() != b.shape()) {
    ops::fail("add", "equal shapes", shape_string(a.shape()) + " and " + shape_string(b.shape()));
  }
  ops::require_same_dtype("add", "second operand", a, b);
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.value().device());
  visit_floating(a.dtype(), "add", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Add<T>{
            .n = y.size(), .a = a.value().data<T>(), .b = b.value().data<T>(), .y = y.data<T>()});
  });
  if (!should_record({a, b})) return Variable(y);
  return record(y, std::make_shared<AddFunction>(), {a, b});
}

}  // namespace steelyard
