#include "steelyard/framework/ops/reductions/rms_norm.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/rms_norm/rms_norm.h"

namespace steelyard {
namespace {

class RmsNormFunction : public Function {
 public:
  RmsNormFunction(Tensor x, Tensor gamma, Tensor inv_rms) {
    for (Tensor* kept : {&x, &gamma, &inv_rms}) save(std::move(*kept));
  }

  std::string name() const override { return "rms_norm"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor &x = saved()[0], &gamma = saved()[1], &inv_rms = saved()[2];
    std::vector<Tensor> grads(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (needs_grad(i)) grads[i] = Tensor::empty(inputs()[i]->shape, x.dtype(), x.device());
    }
    const std::int64_t columns = x.dim(-1), rows = x.size() / columns;
    visit_floating(x.dtype(), "rms_norm", [&](auto zero) {
      using T = decltype(zero);
      if (needs_grad(0)) {
        run(x.device(), kernels::RmsNormBackward<T>{.rows = rows,
                                                    .columns = columns,
                                                    .x = x.data<T>(),
                                                    .grad_y = grad_output.data<T>(),
                                                    .inv_rms = inv_rms.data<T>(),
                                                    .gamma = gamma.data<T>(),
                                                    .grad_x = grads[0].data<T>()});
      }
      if (!needs_grad(1)) return;
      run(x.device(), kernels::RmsNormGammaGradient<T>{.rows = rows,
                                                       .channels = columns,
                                                       .x = x.data<T>(),
                                                       .grad_y = grad_output.data<T>(),
                                                       .inv_rms = inv_rms.data<T>(),
                                                       .grad_gamma = grads[1].data<T>()});
    });
    return grads;
  }
};

}  // namespace

Variable rms_norm(const Variable& x, const Variable& gamma, double eps) {
  ops::require_defined("rms_norm", "an input", x);
  ops::require_defined("rms_norm", "gamma", gamma);
  if (x.shape().empty() || x.dim(-1) < 1) {
    ops::fail("rms_norm", "input [..., C] with C >= 1", shape_string(x.shape()));
  }
  const std::int64_t columns = x.dim(-1);
  ops::require_vector("rms_norm", "gamma", columns, gamma);
  ops::require_same_dtype("rms_norm", "gamma", x, gamma);
  if (!(eps > 0)) ops::fail("rms_norm", "eps above 0", ops::number_text(eps));
  const Tensor& input = x.value();
  const std::int64_t rows = input.size() / columns;
  Tensor y = Tensor::empty(input.shape(), input.dtype(), input.device());
  Tensor inv_rms = Tensor::empty({rows}, input.dtype(), input.device());
  visit_floating(x.dtype(), "rms_norm", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::RmsNorm<T>{.rows = rows,
                                        .columns = columns,
                                        .x = input.data<T>(),
                                        .gamma = gamma.value().data<T>(),
                                        .eps = eps,
                                        .y = y.data<T>(),
                                        .inv_rms = inv_rms.data<T>()});
  });
  if (!should_record({x, gamma})) return Variable(y);
  return record(y, std::make_shared<RmsNormFunction>(input, gamma.value(), inv_rms), {x, gamma});
}

}  // namespace steelyard
