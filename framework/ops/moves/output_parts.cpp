#include "steelyard/framework/ops/moves/output_parts.h"

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/op_support.h"

namespace steelyard {
namespace {

constexpr const char* kName = "output_parts";

std::int64_t values_of_sample(const Shape& shape) {
  return shape_size({shape.begin() + 1, shape.end()});
}

class OutputPartsFunction : public Function {
 public:
  std::string name() const override { return kName; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<std::int64_t> widths;
    for (const auto& input : inputs()) widths.push_back(values_of_sample(input->shape));
    std::vector<Tensor> grads = split(grad_output, widths);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      grads[i] = needs_grad(i) ? grads[i].reshape(inputs()[i]->shape) : Tensor();
    }
    return grads;
  }
};

}  // namespace

Variable output_parts(const std::vector<Variable>& outputs) {
  if (outputs.empty()) ops::fail(kName, "at least one tensor", "none");
  std::vector<Variable> rows;
  for (const Variable& x : outputs) {
    ops::require_defined(kName, "tensors", x);
    ops::require_same_dtype(kName, "tensors", outputs[0], x);
    if (x.shape().empty()) ops::fail(kName, "tensors [N, ...]", "[]");
    if (x.dim(0) != outputs[0].dim(0)) {
      ops::fail(kName, "tensors of one batch",
                shape_string(outputs[0].shape()) + " and " + shape_string(x.shape()));
    }
    rows.emplace_back(x.value().reshape({x.dim(0), values_of_sample(x.shape())}));
  }
  const Tensor y = concat(rows).value();
  if (!should_record(outputs)) return Variable(y);
  return record(y, std::make_shared<OutputPartsFunction>(), outputs);
}

}  // namespace steelyard
