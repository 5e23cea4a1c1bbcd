#include "steelyard/framework/ops/products/conv2d.h"

#include <algorithm>

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

void require_geometry(const Conv2dGeometry& g) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // sizes then fit 64 bits
  for (std::size_t i = 0; i < 2; ++i) {
    if (std::max({g.stride[i], g.padding[i], g.dilation[i]}) > kMost) {
      ops::fail("conv2d", "stride, padding and dilation of at most " + std::to_string(kMost),
                ops::pair_text(g.stride) + ", " + ops::pair_text(g.padding) + " and " +
                    ops::pair_text(g.dilation));
    }
    if (g.stride[i] < 1) ops::fail("conv2d", "stride of at least 1", ops::pair_text(g.stride));
    if (g.padding[i] < 0) ops::fail("conv2d", "padding of at least 0", ops::pair_text(g.padding));
    if (g.dilation[i] < 1) {
      ops::fail("conv2d", "dilation of at least 1", ops::pair_text(g.dilation));
    }
  }
  if (g.groups < 1) ops::fail("conv2d", "groups of at least 1", std::to_string(g.groups));
}

void require_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (x[3] % groups != 0 || w[0] % groups != 0) {
    ops::fail("conv2d",
              "groups that divide C = " + std::to_string(x[3]) + " and O = " + std::to_string(w[0]),
              std::to_string(groups));
  }
  if (w[1] != x[3] / groups) {
    ops::fail("conv2d",
              "weight [O, C/groups, KH, KW] with C/groups = " + std::to_string(x[3] / groups),
              shape_string(w));
  }
}

void require_window_fits(const kernels::Conv2dShape& s) {
  const std::int64_t reach_h = s.dilation_h * (s.kernel_h - 1) + 1;
  const std::int64_t reach_w = s.dilation_w * (s.kernel_w - 1) + 1;
  if (s.in_h + 2 * s.pad_h < reach_h || s.in_w + 2 * s.pad_w < reach_w) {
    ops::fail("conv2d",
              "a padded input of at least " + std::to_string(reach_h) + "x" +
                  std::to_string(reach_w) + " (the dilated kernel)",
              std::to_string(s.in_h + 2 * s.pad_h) + "x" + std::to_string(s.in_w + 2 * s.pad_w));
  }
}

}  // namespace

kernels::Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dGeometry& geometry) {
  if (x.size() != 4) ops::fail("conv2d", "input [N, H, W, C]", shape_string(x));
  if (w.size() != 4 || *std::min_element(w.begin(), w.end()) < 1) {
    ops::fail("conv2d", "weight [O, C/groups, KH, KW]", shape_string(w));
  }
  require_geometry(geometry);
  require_channels(x, w, geometry.groups);
  const kernels::Conv2dShape shape{.batch = x[0],
                                   .in_h = x[1],
                                   .in_w = x[2],
                                   .in_channels = x[3],
                                   .out_channels = w[0],
                                   .kernel_h = w[2],
                                   .kernel_w = w[3],
                                   .stride_h = geometry.stride[0],
                                   .stride_w = geometry.stride[1],
                                   .pad_h = geometry.padding[0],
                                   .pad_w = geometry.padding[1],
                                   .dilation_h = geometry.dilation[0],
                                   .dilation_w = geometry.dilation[1],
                                   .groups = geometry.groups};
  require_window_fits(shape);
  return shape;
}

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
