#include "steelyard/framework/ops/reductions/softmax.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
namespace {

// The kernel of one value type for each row of x, which writes y.
template <template <typename> class Kernel>
Tensor of_rows(const char* op, const Variable& x) {
  ops::require_defined(op, "a tensor", x);
  if (x.shape().empty()) ops::fail(op, "input [..., columns]", "[]");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.value().device());
  visit_floating(x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    if (y.size() == 0) return;
    run(y.device(), Kernel<T>{.rows = y.size() / y.dim(-1),
                              .columns = y.dim(-1),
                              .x = x.value().data<T>(),
                              .y = y.data<T>()});
  });
  return y;
}

// The gradient of an operation on rows, computed from its output.
template <template <typename> class Kernel>
Tensor gradient_of_rows(const Tensor& y, const Tensor& grad_output) {
  Tensor grad_x = Tensor::empty(y.shape(), y.dtype(), y.device());
  if (y.size() == 0) return grad_x;
  visit_floating(y.dtype(), "softmax", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), Kernel<T>{.rows = y.size() / y.dim(-1),
                              .columns = y.dim(-1),
                              .y = y.data<T>(),
                              .grad_y = grad_output.data<T>(),
                              .grad_x = grad_x.data<T>()});
  });
  return grad_x;
}

class SoftmaxFunction : public Function {
 public:
  explicit SoftmaxFunction(Tensor y) { save(std::move(y)); }
  std::string name() const override { return "softmax"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {gradient_of_rows<kernels::SoftmaxBackward>(saved()[0], grad_output)};
  }
};

class LogSoftmaxFunction : public Function {
 public:
  explicit LogSoftmaxFunction(Tensor y) { save(std::move(y)); }
  std::string name() const override { return "log_softmax"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {gradient_of_rows<kernels::LogSoftmaxBackward>(saved()[0], grad_output)};
  }
};

}  // namespace

Variable softmax(const Variable& x) {
  Tensor y = of_rows<kernels::Softmax>("softmax", x);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SoftmaxFunction>(y), {x});
}

Variable log_softmax(const Variable& x) {
  Tensor y = of_rows<kernels::LogSoftmax>("log_softmax", x);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<LogSoftmaxFunction>(y), {x});
}

}  // namespace steelyard
