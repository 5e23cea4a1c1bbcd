#include "framework/ops/layer_norm.h"

#include "framework/ops/op_support.h"
#include "kernels/layer_norm.h"

namespace steelyard {
namespace {

class LayerNormFunction : public Function {
 public:
  LayerNormFunction(double eps, Tensor x, Tensor gamma, Tensor mean, Tensor inv_std) : eps_(eps) {
    for (Tensor* kept : {&x, &gamma, &mean, &inv_std}) save(std::move(*kept));
  }

  std::string name() const override { return "layer_norm"; }
  Attributes attributes() const override { return {{"eps", ops::number_text(eps_)}}; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor& x = saved()[0];
    std::vector<Tensor> grads(3);
    for (std::size_t i = 0; i < 3; ++i) {
      if (needs_grad(i)) grads[i] = Tensor::empty(inputs()[i]->shape, x.dtype(), x.device());
    }
    visit_floating(x.dtype(), "layer_norm", [&](auto zero) {
      using T = decltype(zero);
      const auto data = [](const Tensor& t) { return t.defined() ? t.data<T>() : nullptr; };
      on_device(x.device(), [&](auto&... queue) {
        kernels::layer_norm_backward<T>(queue..., x.size() / x.dim(-1), x.dim(-1), x.data<T>(),
                                        grad_output.data<T>(), data(saved()[2]), data(saved()[3]),
                                        data(saved()[1]), data(grads[0]), data(grads[1]),
                                        data(grads[2]));
      });
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
    on_device(y.device(), [&](auto&... queue) {
      kernels::layer_norm_forward<T>(queue..., rows, columns, input.data<T>(),
                                     gamma.value().data<T>(), beta.value().data<T>(), eps,
                                     y.data<T>(), mean.data<T>(), inv_std.data<T>());
    });
  });
  if (!should_record({x, gamma, beta})) return Variable(y);
  return record(y, std::make_shared<LayerNormFunction>(eps, input, gamma.value(), mean, inv_std),
                {x, gamma, beta});
}

}  // namespace steelyard
