#include "steelyard/framework/ops/choose.h"

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/reduced_axes.h"

namespace steelyard {
namespace {

const char* op_name(Comparison comparison) {
  switch (comparison) {
    case Comparison::kGreater:
      return "where_greater";
    case Comparison::kGreaterEqual:
      return "where_greater_equal";
    case Comparison::kEqual:
      break;
  }
  return "where_equal";
}

Tensor compared(Comparison comparison, const Variable& x, const Variable& y) {
  if (comparison == Comparison::kGreater) return x > y;
  if (comparison == Comparison::kGreaterEqual) return x >= y;
  // Neither is less: not the difference, which is NaN of infinities.
  const Variable one = constant(1, x), none = constant(0, x);
  return where(x >= y, where(y >= x, one, none), none) > 0.0;
}

class ChooseFunction : public Function {
 public:
  ChooseFunction(Comparison comparison, Tensor condition) : comparison_(comparison) {
    save(std::move(condition));
  }
  std::string name() const override { return op_name(comparison_); }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const NoGradGuard no_grad;
    const Variable grad(grad_output);
    std::vector<Tensor> grads(4);
    for (const std::size_t i : {2U, 3U}) {
      if (!needs_grad(i)) continue;
      const Variable chosen = i == 2 ? where(saved()[0], grad, 0.0) : where(saved()[0], 0.0, grad);
      grads[i] = ops::summed_to(op_name(comparison_), chosen.value(), inputs()[i]->shape);
    }
    return grads;
  }

 private:
  Comparison comparison_;
};

}  // namespace

Variable choose(Comparison comparison, const Variable& x, const Variable& y, const Variable& a,
                const Variable& b) {
  Tensor condition;
  Variable chosen;
  {
    const NoGradGuard no_grad;
    condition = compared(comparison, x, y);
    chosen = where(condition, a, b);
  }
  if (!should_record({x, y, a, b})) return chosen;
  return record(chosen.value(), std::make_shared<ChooseFunction>(comparison, condition),
                {x, y, a, b});
}

}  // namespace steelyard
