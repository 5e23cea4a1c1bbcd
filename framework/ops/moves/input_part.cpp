#include "steelyard/framework/ops/moves/input_part.h"

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

// The values of all samples [N, ...], a row for each.
ops::Part rows_of(const Shape& x, const SamplePart& part) {
  const std::int64_t batch = x[0], values = batch == 0 ? 0 : shape_size(x) / batch;
  return {.shape = {batch, shape_size(part.shape)}, .first = part.first, .strides = {values, 1}};
}

class InputPartFunction : public Function, public Describes<SamplePart> {
 public:
  explicit InputPartFunction(SamplePart part) : part_(std::move(part)) {}
  std::string name() const override { return "input_part"; }
  SamplePart described() const override { return part_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Shape& x = inputs()[0]->shape;
    const Tensor grad = Tensor::zeros(x, grad_output.dtype(), grad_output.device());
    const ops::Part rows = rows_of(x, part_);
    ops::scatter("input_part", grad_output.reshape(rows.shape), grad, rows);
    return {grad};
  }

 private:
  SamplePart part_;
};

}  // namespace

Variable input_part(const Variable& x, const SamplePart& part) {
  ops::require_defined("input_part", "samples", x);
  if (x.shape().empty()) ops::fail("input_part", "samples [N, ...]", "[]");
  const Shape sample(x.shape().begin() + 1, x.shape().end());
  const std::int64_t values = shape_size(sample), count = shape_size(part.shape);
  if (part.first < 0 || part.first > values - count) {
    ops::fail("input_part", "samples of " + std::to_string(part.first + count) + " values or more",
              shape_string(x.shape()));
  }
  Shape shape = part.shape;
  shape.insert(shape.begin(), x.dim(0));
  const Tensor y =
      ops::gathered("input_part", x.value(), rows_of(x.shape(), part)).reshape(std::move(shape));
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<InputPartFunction>(part), {x});
}

}  // namespace steelyard
