#include "steelyard/framework/ops/moves/flatten.h"

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/transpose/transpose.h"

namespace steelyard {
namespace {

// NHWC and NCHW are the same bytes.
bool same_order(const Shape& nhwc) { return nhwc[1] * nhwc[2] == 1 || nhwc[3] == 1; }

Shape flat_shape(const Shape& nhwc) { return {nhwc[0], nhwc[3] * nhwc[1] * nhwc[2]}; }

class FlattenFunction : public Function {
 public:
  explicit FlattenFunction(Shape x_shape) : x_shape_(std::move(x_shape)) {}

  std::string name() const override { return "flatten"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    if (same_order(x_shape_)) return {grad_output.reshape(x_shape_)};
    Tensor grad_x = Tensor::empty(x_shape_, grad_output.dtype(), grad_output.device());
    visit_floating(grad_output.dtype(), "flatten", [&](auto zero) {
      using T = decltype(zero);
      run(grad_x.device(), kernels::Transpose<T>{.batch = x_shape_[0],
                                                 .rows = x_shape_[3],
                                                 .columns = x_shape_[1] * x_shape_[2],
                                                 .x = grad_output.data<T>(),
                                                 .y = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  Shape x_shape_;
};

Tensor nchw_rows(const Tensor& x) {
  const Shape& s = x.shape();
  if (same_order(s)) return x.reshape(flat_shape(s));
  Tensor y = Tensor::empty(flat_shape(s), x.dtype(), x.device());
  visit_floating(x.dtype(), "flatten", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Transpose<T>{.batch = s[0],
                                          .rows = s[1] * s[2],
                                          .columns = s[3],
                                          .x = x.data<T>(),
                                          .y = y.data<T>()});
  });
  return y;
}

}  // namespace

Variable flatten(const Variable& x) {
  ops::require_defined("flatten", "a tensor", x);
  if (x.shape().size() == 2) return x;
  if (x.shape().size() == 3) return flatten(reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}));
  if (x.shape().size() != 4) {
    ops::fail("flatten", "input [N, H, W, C], [N, L, C] or [N, features]", shape_string(x.shape()));
  }
  Tensor y = nchw_rows(x.value());
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<FlattenFunction>(x.shape()), {x});
}

}  // namespace steelyard
