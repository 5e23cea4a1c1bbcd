#include "steelyard/framework/ops/products/linear.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard {
namespace {

struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

class LinearFunction : public Function {
 public:
  LinearFunction(const LinearShape& shape, const Variable& x, const Variable& w)
      : shape_(shape), x_shape_(x.shape()) {
    save(w.requires_grad() ? x.value() : Tensor());
    save(x.requires_grad() ? w.value() : Tensor());
  }

  std::string name() const override { return "linear"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "linear",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const LinearShape& s = shape_;
    const DType dtype = grad_output.dtype();
    const Device device = grad_output.device();
    const T* grad_y = grad_output.data<T>();
    std::vector<Tensor> grads(inputs().size());
    if (needs_grad(0)) {
      grads[0] = Tensor::empty(x_shape_, dtype, device);
      run(device, kernels::Matmul<T>{.shape = {.m = s.rows, .n = s.in, .k = s.out},
                                     .a = grad_y,
                                     .b = saved()[1].data<T>(),
                                     .c = grads[0].data<T>()});
    }
    if (needs_grad(1)) {
      grads[1] = Tensor::empty({s.out, s.in}, dtype, device);
      run(device,
          kernels::Matmul<T>{.shape = {.m = s.out, .n = s.in, .k = s.rows, .transpose_a = true},
                             .a = grad_y,
                             .b = saved()[0].data<T>(),
                             .c = grads[1].data<T>()});
    }
    if (inputs().size() > 2 && needs_grad(2)) grads[2] = ops::column_sums<T>(grad_output);
    return grads;
  }

  LinearShape shape_;
  Shape x_shape_;
};

LinearShape checked_shape(const Variable& x, const Variable& w, const Variable& bias) {
  ops::require_defined("linear", "an input", x);
  ops::require_defined("linear", "a weight", w);
  if (x.shape().empty()) ops::fail("linear", "input [..., in]", "[]");
  const std::int64_t in = x.shape().back();
  if (w.shape().size() != 2 || w.dim(1) != in) {
    ops::fail("linear", "weight [out, in] with in = " + std::to_string(in),
              shape_string(w.shape()));
  }
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < x.shape().size(); ++i) rows *= x.shape()[i];
  ops::require_vector("linear", "bias", w.dim(0), bias);
  ops::require_same_dtype("linear", "weight", x, w);
  ops::require_same_dtype("linear", "bias", x, bias);
  return {rows, in, w.dim(0)};
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  const LinearShape shape = checked_shape(x, w, bias);
  Shape y_shape = x.shape();
  y_shape.back() = shape.out;
  if (shapes_only()) return Variable(Tensor::zeros(y_shape, x.dtype(), x.value().device()));
  Tensor y = Tensor::empty(std::move(y_shape), x.dtype(), x.value().device());
  visit_floating(x.dtype(), "linear", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::Matmul<T>{
            .shape = {.m = shape.rows, .n = shape.out, .k = shape.in, .transpose_b = true},
            .a = x.value().data<T>(),
            .b = w.value().data<T>(),
            .c = y.data<T>()});
    if (!bias.defined()) return;
    run(y.device(), kernels::AddBias<T>{.rows = shape.rows,
                                        .channels = shape.out,
                                        .x = y.data<T>(),
                                        .bias = bias.value().data<T>(),
                                        .y = y.data<T>()});
  });
  if (!should_record({x, w, bias})) return Variable(y);
  return record(y, std::make_shared<LinearFunction>(shape, x, w), {x, w, bias});
}

}  // namespace steelyard
