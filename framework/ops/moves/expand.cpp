#include "steelyard/framework/ops/moves/expand.h"

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

class ExpandFunction : public Function, public Describes<Shape> {
 public:
  explicit ExpandFunction(Shape shape) : shape_(std::move(shape)) {}
  std::string name() const override { return "expand"; }
  Shape described() const override { return shape_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {ops::summed_to("expand", grad_output, inputs()[0]->shape)};
  }

 private:
  Shape shape_;
};

}  // namespace

Variable expand(const Variable& x, const Shape& shape) {
  ops::require_defined("expand", "a tensor", x);
  if (ops::broadcast_shape("expand", x.shape(), shape) != shape) {
    ops::fail("expand", "a shape that " + shape_string(x.shape()) + " broadcasts to",
              shape_string(shape));
  }
  if (x.shape() == shape) return x;
  Tensor y = Tensor::empty(shape, x.dtype(), x.value().device());
  if (y.size() > 0) {
    visit_floating(x.dtype(), "expand", [&](auto zero) {
      using T = decltype(zero);
      run(y.device(),
          kernels::CopyStrided<T>{
              .n = y.size(),
              .x = x.value().data<T>(),
              .from = ops::broadcast_index("expand", x.shape(), shape),
              .y = y.data<T>(),
              .to = ops::strided_index("expand", shape, ops::row_major_strides(shape))});
    });
  }
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<ExpandFunction>(shape), {x});
}

}  // namespace steelyard
