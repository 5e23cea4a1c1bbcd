#include "steelyard/framework/ops/products/conv2d.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

class Conv2dFunction : public Function, public Describes<Conv2dGeometry> {
 public:
  Conv2dFunction(const kernels::Conv2dShape& shape, const Conv2dGeometry& geometry,
                 const Variable& x, const Variable& w)
      : shape_(shape), geometry_(geometry), x_shape_(x.shape()), w_shape_(w.shape()) {
    save(w.requires_grad() ? x.value() : Tensor());
    save(x.requires_grad() ? w.value() : Tensor());
  }

  std::string name() const override { return "conv2d"; }
  Conv2dGeometry described() const override { return geometry_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "conv2d",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const DType dtype = grad_output.dtype();
    const Device device = grad_output.device();
    const T* grad_y = grad_output.data<T>();
    std::vector<Tensor> grads(inputs().size());
    if (inputs().size() > 2 && needs_grad(2)) grads[2] = ops::column_sums<T>(grad_output);
    if (needs_grad(0)) {
      grads[0] = Tensor::empty(x_shape_, dtype, device);
      run(device, kernels::Conv2dBackwardInput<T>{.shape = shape_,
                                                  .grad_y = grad_y,
                                                  .w = saved()[1].data<T>(),
                                                  .grad_x = grads[0].data<T>()});
    }
    if (needs_grad(1)) {
      grads[1] = Tensor::empty(w_shape_, dtype, device);
      run(device, kernels::Conv2dBackwardWeight<T>{.shape = shape_,
                                                   .x = saved()[0].data<T>(),
                                                   .grad_y = grad_y,
                                                   .grad_w = grads[1].data<T>()});
    }
    return grads;
  }

  kernels::Conv2dShape shape_;
  Conv2dGeometry geometry_;
  Shape x_shape_;
  Shape w_shape_;
};

}  // namespace

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias,
                const Conv2dGeometry& geometry) {
  ops::require_defined("conv2d", "an input", x);
  ops::require_defined("conv2d", "a weight", w);
  const kernels::Conv2dShape shape = conv2d_shape(x.shape(), w.shape(), geometry);
  ops::require_vector("conv2d", "bias", shape.out_channels, bias);
  ops::require_same_dtype("conv2d", "weight", x, w);
  ops::require_same_dtype("conv2d", "bias", x, bias);
  const Shape y_shape{shape.batch, shape.out_h(), shape.out_w(), shape.out_channels};
  if (shapes_only()) return Variable(Tensor::zeros(y_shape, x.dtype(), x.value().device()));
  Tensor y = Tensor::empty(y_shape, x.dtype(), x.value().device());
  visit_floating(x.dtype(), "conv2d", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Conv2d<T>{.shape = shape,
                                       .x = x.value().data<T>(),
                                       .w = w.value().data<T>(),
                                       .bias = bias.defined() ? bias.value().data<T>() : nullptr,
                                       .y = y.data<T>()});
  });
  if (!should_record({x, w, bias})) return Variable(y);
  return record(y, std::make_shared<Conv2dFunction>(shape, geometry, x, w), {x, w, bias});
}

}  // namespace steelyard
