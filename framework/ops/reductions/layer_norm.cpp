#include "steelyard/framework/ops/reductions/layer_norm.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/layer_norm/layer_norm.h"

namespace steelyard {
namespace {

class LayerNormFunction : public Function, public Describes<double> {
 public:
  LayerNormFunction(double eps, Tensor x, Tensor gamma, Tensor mean, Tensor inv_std) : eps_(eps) {
    for (Tensor* kept : {&x, &gamma, &mean, &inv_std}) save(std::move(*kept));
  }

  std::string name() const override { return "layer_norm"; }
  double described() const override { return eps_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    std::vector<Tensor> grads(3);
    for (std::size_t i = 0; i < 3; ++i) {
      if (needs_grad(i)) grads[i] = Tensor::empty(inputs()[i]->shape, x.dtype(), x.device());
    }
    visit_floating(x.dtype(), "layer_norm", [&](auto zero) {
      using T = decltype(zero);
      const auto data = [](const Tensor& t) { return t.defined() ? t.data<T>() : nullptr; };
      if (needs_grad(0)) {
        run(x.device(), kernels::LayerNormBackward<T>{.rows = x.size() / x.dim(-1),
                                                      .columns = x.dim(-1),
                                                      .x = x.data<T>(),
                                                      .grad_y = grad_output.data<T>(),
                                                      .mean = data(saved()[2]),
                                                      .inv_std = data(saved()[3]),
                                                      .gamma = data(saved()[1]),
                                                      .grad_x = data(grads[0])});
      }
      if (!needs_grad(1) && !needs_grad(2)) return;
      run(x.device(), kernels::LayerNormParameterGradients<T>{.rows = x.size() / x.dim(-1),
                                                              .channels = x.dim(-1),
                                                              .x = x.data<T>(),
                                                              .grad_y = grad_output.data<T>(),
                                                              .mean = data(saved()[2]),
                                                              .inv_std = data(saved()[3]),
                                                              .grad_gamma = data(grads[1]),
                                                              .grad_beta = data(grads[2])});
    });
    return grads;
  }

 private:
  double eps_;
};

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps) {
  ops::require_defined("layer_norm", "an input", x);
  ops::require_defined("layer_norm", "gamma", gamma);
  ops::require_defined("layer_norm", "beta", beta);
  if (x.shape().empty() || x.dim(-1) < 1) {
    ops::fail("layer_norm", "input [..., C] with C >= 1", shape_string(x.shape()));
  }
  const std::int64_t columns = x.dim(-1);
  for (const auto& [what, v] : {std::pair{"gamma", gamma}, {"beta", beta}}) {
    ops::require_vector("layer_norm", what, columns, v);
    ops::require_same_dtype("layer_norm", what, x, v);
  }
  if (!(eps > 0)) ops::fail("layer_norm", "eps above 0", ops::number_text(eps));
  const Tensor& input = x.value();
  const std::int64_t rows = input.size() / columns;
  Tensor y = Tensor::empty(input.shape(), input.dtype(), input.device());
  Tensor mean = Tensor::empty({rows}, input.dtype(), input.device());
  Tensor inv_std = Tensor::empty({rows}, input.dtype(), input.device());
  visit_floating(x.dtype(), "layer_norm", [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::LayerNorm<T>{.rows = rows,
                                          .columns = columns,
                                          .x = input.data<T>(),
                                          .gamma = gamma.value().data<T>(),
                                          .beta = beta.value().data<T>(),
                                          .eps = eps,
                                          .y = y.data<T>(),
                                          .mean = mean.data<T>(),
                                          .inv_std = inv_std.data<T>()});
  });
  if (!should_record({x, gamma, beta})) return Variable(y);
  return record(y, std::make_shared<LayerNormFunction>(eps, input, gamma.value(), mean, inv_std),
                {x, gamma, beta});
}

}  // namespace steelyard
