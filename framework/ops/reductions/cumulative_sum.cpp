#include "steelyard/framework/ops/reductions/cumulative_sum.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/scan/scan.h"

namespace steelyard {
namespace {

Tensor running_sums(const Tensor& x, const CumulativeSumOptions& options) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() == 0) return y;
  visit_floating(x.dtype(), "cumulative_sum", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::CumulativeSum<T>{.n = y.size() / y.dim(-1),
                                              .columns = y.dim(-1),
                                              .exclusive = options.exclusive,
                                              .reverse = options.reverse,
                                              .x = x.data<T>(),
                                              .y = y.data<T>()});
  });
  return y;
}

class CumulativeSumFunction : public Function, public Describes<CumulativeSumOptions> {
 public:
  explicit CumulativeSumFunction(const CumulativeSumOptions& options) : options_(options) {}
  std::string name() const override { return "cumulative_sum"; }
  CumulativeSumOptions described() const override { return options_; }
  // An element goes into the sums from its own place on: the sums of their gradients from the end.
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    CumulativeSumOptions back = options_;
    back.reverse = !back.reverse;
    return {running_sums(grad_output, back)};
  }

 private:
  CumulativeSumOptions options_;
};

}  // namespace

Variable cumulative_sum(const Variable& x, const CumulativeSumOptions& options) {
  ops::require_defined("cumulative_sum", "a tensor", x);
  if (x.shape().empty()) ops::fail("cumulative_sum", "input [..., columns]", "[]");
  Tensor y = running_sums(x.value(), options);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<CumulativeSumFunction>(options), {x});
}

}  // namespace steelyard
