#include "steelyard/framework/ops/moves/choose.h"

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {
namespace {

// Neither is less: not the difference, which is NaN of infinities.
Tensor equal(const Variable& x, const Variable& y) {
  const Variable one = constant(1, x), none = constant(0, x);
  return where(x >= y, where(y >= x, one, none), none) > 0.0;
}

struct ComparisonRow {
  Comparison value;
  const char* operation;
  const char* layer;
  Tensor (*compared)(const Variable& x, const Variable& y);
};
constexpr ComparisonRow kRows[] = {
    {Comparison::kGreater, "where_greater", "WhereGreater",
     [](const Variable& x, const Variable& y) { return x > y; }},
    {Comparison::kGreaterEqual, "where_greater_equal", "WhereGreaterEqual",
     [](const Variable& x, const Variable& y) { return x >= y; }},
    {Comparison::kEqual, "where_equal", "WhereEqual", equal},
};
static_assert(has_every_value(kRows, Comparison::kEqual));

class ChooseFunction : public Function {
 public:
  ChooseFunction(Comparison comparison, Tensor condition) : comparison_(comparison) {
    save(std::move(condition));
  }
  std::string name() const override { return row_in(kRows, comparison_).operation; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const NoGradGuard no_grad;
    const Variable grad(grad_output);
    std::vector<Tensor> grads(4);
    for (const std::size_t i : {2U, 3U}) {
      if (!needs_grad(i)) continue;
      const Variable chosen = i == 2 ? where(saved()[0], grad, 0.0) : where(saved()[0], 0.0, grad);
      grads[i] = ops::summed_to(name().c_str(), chosen.value(), inputs()[i]->shape);
    }
    return grads;
  }

 private:
  Comparison comparison_;
};

}  // namespace

const char* choice_layer(Comparison comparison) { return row_in(kRows, comparison).layer; }

Variable choose(Comparison comparison, const Variable& x, const Variable& y, const Variable& a,
                const Variable& b) {
  Tensor condition;
  Variable chosen;
  {
    const NoGradGuard no_grad;
    condition = row_in(kRows, comparison).compared(x, y);
    chosen = where(condition, a, b);
  }
  if (!should_record({x, y, a, b})) return chosen;
  return record(chosen.value(), std::make_shared<ChooseFunction>(comparison, condition),
                {x, y, a, b});
}

}  // namespace steelyard
