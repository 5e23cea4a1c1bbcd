#include "steelyard/framework/ops/products/conv_transpose2d.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

// The convolution that this is the gradient of: it takes y to x.
class ConvTranspose2dFunction : public Function, public Describes<ConvTranspose2dGeometry> {
 public:
  ConvTranspose2dFunction(const kernels::Conv2dShape& shape,
                          const ConvTranspose2dGeometry& geometry, const Variable& x,
                          const Variable& w)
      : shape_(shape), geometry_(geometry), x_shape_(x.shape()), w_shape_(w.shape()) {
    save(w.requires_grad() ? x.value() : Tensor());
    save(x.requires_grad() ? w.value() : Tensor());
  }

  std::string name() const override { return "conv_transpose2d"; }
  ConvTranspose2dGeometry described() const override { return geometry_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "conv_transpose2d",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const DType dtype = grad_output.dtype();
    const Device device = grad_output.device();
    const T* grad_y = grad_output.data<T>();
    std::vector<Tensor> grads(inputs().size());
    if (needs_grad(0)) {
      grads[0] = Tensor::empty(x_shape_, dtype, device);
      run(device, kernels::Conv2d<T>{.shape = shape_,
                                     .x = grad_y,
                                     .w = saved()[1].data<T>(),
                                     .bias = nullptr,
                                     .y = grads[0].data<T>()});
    }
    if (needs_grad(1)) {
      grads[1] = Tensor::empty(w_shape_, dtype, device);
      run(device, kernels::Conv2dBackwardWeight<T>{.shape = shape_,
                                                   .x = grad_y,
                                                   .grad_y = saved()[0].data<T>(),
                                                   .grad_w = grads[1].data<T>()});
    }
    if (inputs().size() > 2 && needs_grad(2)) grads[2] = ops::column_sums<T>(grad_output);
    return grads;
  }

  kernels::Conv2dShape shape_;
  ConvTranspose2dGeometry geometry_;
  Shape x_shape_;
  Shape w_shape_;
};

}  // namespace

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvTranspose2dGeometry& geometry) {
  constexpr const char* kOp = "conv_transpose2d";
  ops::require_defined(kOp, "an input", x);
  ops::require_defined(kOp, "a weight", w);
  ops::require_same_dtype(kOp, "weight", x, w);
  ops::require_same_dtype(kOp, "bias", x, bias);
  const kernels::Conv2dShape shape = conv_transpose2d_shape(x.shape(), w.shape(), geometry);
  ops::require_vector(kOp, "bias", shape.in_channels, bias);
  Shape y_shape{shape.batch, shape.in_h, shape.in_w, shape.in_channels};
  if (shapes_only()) return Variable(Tensor::zeros(y_shape, x.dtype(), x.value().device()));
  Tensor y = Tensor::empty(std::move(y_shape), x.dtype(), x.value().device());
  visit_floating(x.dtype(), "conv_transpose2d", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Conv2dBackwardInput<T>{.shape = shape,
                                                    .grad_y = x.value().data<T>(),
                                                    .w = w.value().data<T>(),
                                                    .grad_x = y.data<T>()});
    if (!bias.defined()) return;
    run(y.device(), kernels::AddBias<T>{.rows = y.size() / shape.in_channels,
                                        .channels = shape.in_channels,
                                        .x = y.data<T>(),
                                        .bias = bias.value().data<T>(),
                                        .y = y.data<T>()});
  });
  if (!should_record({x, w, bias})) return Variable(y);
  return record(y, std::make_shared<ConvTranspose2dFunction>(shape, geometry, x, w), {x, w, bias});
}

}  // namespace steelyard
