#include "steelyard/framework/ops/softmax.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
namespace {

class SoftmaxFunction : public Function {
 public:
  explicit SoftmaxFunction(Tensor y) { save(std::move(y)); }
  std::string name() const override { return "softmax"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& y = saved()[0];
    Tensor grad_x = Tensor::empty(y.shape(), y.dtype(), y.device());
    if (y.size() == 0) return {grad_x};
    visit_floating(y.dtype(), "softmax", [&](auto zero) {
      using T = decltype(zero);
      run(y.device(), kernels::SoftmaxBackward<T>{.rows = y.size() / y.dim(-1),
                                                  .columns = y.dim(-1),
                                                  .y = y.data<T>(),
                                                  .grad_y = grad_output.data<T>(),
                                                  .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }
};

}  // namespace

Variable softmax(const Variable& x) {
  ops::require_defined("softmax", "a tensor", x);
  if (x.shape().empty()) ops::fail("softmax", "input [..., columns]", "[]");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.value().device());
  if (y.size() > 0) {
    visit_floating(x.dtype(), "softmax", [&](auto zero) {
      using T = decltype(zero);
      run(y.device(), kernels::Softmax<T>{.rows = y.size() / y.dim(-1),
                                          .columns = y.dim(-1),
                                          .x = x.value().data<T>(),
                                          .y = y.data<T>()});
    });
  }
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SoftmaxFunction>(y), {x});
}

}  // namespace steelyard
