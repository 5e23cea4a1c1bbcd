#include "steelyard/framework/ops/reductions/pool.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

// Winners' offsets are 16 bits, kept as bytes: there is no 16-bit integer dtype.
constexpr std::int64_t kLargestWindow = 1 << 16;
std::uint16_t* offsets(const Tensor& bytes) { return static_cast<std::uint16_t*>(bytes.raw()); }

Shape input_shape(const kernels::Conv2dShape& s) {
  return {s.batch, s.in_h, s.in_w, s.in_channels};
}
Shape output_shape(const kernels::Conv2dShape& s) {
  return {s.batch, s.out_h(), s.out_w(), s.out_channels};
}

class MaxPool2dFunction : public Function, public Describes<Pool2dGeometry> {
 public:
  MaxPool2dFunction(const kernels::Conv2dShape& shape, const Pool2dGeometry& geometry,
                    Tensor argmax)
      : shape_(shape), geometry_(geometry) {
    save(std::move(argmax));
  }

  std::string name() const override { return "max_pool2d"; }
  Pool2dGeometry described() const override { return geometry_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    Tensor grad_x = Tensor::empty(input_shape(shape_), grad_output.dtype(), grad_output.device());
    visit_floating(grad_output.dtype(), "max_pool2d", [&](auto zero) {
      using T = decltype(zero);
      run(grad_x.device(), kernels::MaxPoolBackward<T>{.shape = shape_,
                                                       .grad_y = grad_output.data<T>(),
                                                       .argmax = offsets(saved()[0]),
                                                       .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  kernels::Conv2dShape shape_;
  Pool2dGeometry geometry_;
};

class AvgPool2dFunction : public Function, public Describes<AveragePool2d> {
 public:
  AvgPool2dFunction(const kernels::Conv2dShape& shape, const Pool2dGeometry& geometry,
                    bool count_include_pad)
      : shape_(shape), geometry_(geometry), count_include_pad_(count_include_pad) {}

  std::string name() const override { return "avg_pool2d"; }
  AveragePool2d described() const override { return {geometry_, count_include_pad_}; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    Tensor grad_x = Tensor::empty(input_shape(shape_), grad_output.dtype(), grad_output.device());
    visit_floating(grad_output.dtype(), "avg_pool2d", [&](auto zero) {
      using T = decltype(zero);
      run(grad_x.device(), kernels::AveragePoolBackward<T>{.shape = shape_,
                                                           .count_include_pad = count_include_pad_,
                                                           .grad_y = grad_output.data<T>(),
                                                           .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  kernels::Conv2dShape shape_;
  Pool2dGeometry geometry_;
  bool count_include_pad_;
};

class GlobalAvgPoolFunction : public Function {
 public:
  explicit GlobalAvgPoolFunction(Shape x_shape) : x_shape_(std::move(x_shape)) {}

  std::string name() const override { return "global_avg_pool"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    Tensor grad_x = Tensor::empty(x_shape_, grad_output.dtype(), grad_output.device());
    visit_floating(grad_output.dtype(), "global_avg_pool", [&](auto zero) {
      using T = decltype(zero);
      run(grad_x.device(),
          kernels::GlobalAveragePoolBackward<T>{.rows = x_shape_[0] * x_shape_[1] * x_shape_[2],
                                                .columns = x_shape_[3],
                                                .pixels = x_shape_[1] * x_shape_[2],
                                                .grad_y = grad_output.data<T>(),
                                                .grad_x = grad_x.data<T>()});
    });
    return {grad_x};
  }

 private:
  Shape x_shape_;
};

}  // namespace

kernels::Conv2dShape max_pool2d_shape(const Shape& x, const Pool2dGeometry& geometry) {
  const kernels::Conv2dShape shape = pool2d_shape("max_pool2d", x, geometry);
  if (shape.kernel_h * shape.kernel_w > kLargestWindow) {
    ops::fail("max_pool2d", "a kernel of at most 65536 elements", ops::pair_text(geometry.kernel));
  }
  return shape;
}

Variable max_pool2d(const Variable& x, const Pool2dGeometry& geometry) {
  ops::require_defined("max_pool2d", "an input", x);
  const kernels::Conv2dShape shape = max_pool2d_shape(x.shape(), geometry);
  const bool recorded = should_record({x});
  Tensor y = Tensor::empty(output_shape(shape), x.dtype(), x.value().device());
  const Tensor argmax = recorded ? Tensor::empty({y.size(), 2}, DType::kU8, y.device()) : Tensor();
  visit_floating(x.dtype(), "max_pool2d", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(),
        kernels::MaxPool<T>{
            .shape = shape, .x = x.value().data<T>(), .y = y.data<T>(), .argmax = offsets(argmax)});
  });
  if (!recorded) return Variable(y);
  return record(y, std::make_shared<MaxPool2dFunction>(shape, geometry, argmax), {x});
}

Variable avg_pool2d(const Variable& x, const Pool2dGeometry& geometry, bool count_include_pad) {
  ops::require_defined("avg_pool2d", "an input", x);
  const kernels::Conv2dShape shape = pool2d_shape("avg_pool2d", x.shape(), geometry);
  Tensor y = Tensor::empty(output_shape(shape), x.dtype(), x.value().device());
  visit_floating(x.dtype(), "avg_pool2d", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::AveragePool<T>{.shape = shape,
                                            .count_include_pad = count_include_pad,
                                            .x = x.value().data<T>(),
                                            .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<AvgPool2dFunction>(shape, geometry, count_include_pad), {x});
}

Variable global_avg_pool(const Variable& x) {
  ops::require_defined("global_avg_pool", "an input", x);
  const Shape& s = x.shape();
  if (s.size() != 4 || s[1] * s[2] < 1) {
    ops::fail("global_avg_pool", "input [N, H, W, C] with pixels", shape_string(s));
  }
  Tensor y = Tensor::empty({s[0], s[3]}, x.dtype(), x.value().device());
  visit_floating(x.dtype(), "global_avg_pool", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::GlobalAveragePool<T>{.batch = s[0],
                                                  .pixels = s[1] * s[2],
                                                  .channels = s[3],
                                                  .x = x.value().data<T>(),
                                                  .y = y.data<T>()});
  });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<GlobalAvgPoolFunction>(s), {x});
}

}  // namespace steelyard
