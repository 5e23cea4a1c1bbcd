#include "steelyard/framework/ops/reductions/batch_norm.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/norm/norm.h"

namespace steelyard {
namespace {

struct Moments {
  Tensor mean;
  Tensor variance;
};

class BatchNormFunction : public Function {
 public:
  BatchNormFunction(const BatchNormState& state, const Tensor& x, const Tensor& gamma,
                    const Tensor& mean, const Tensor& inv_std)
      : batch_statistics_(state.batch_statistics) {
    save(x);
    save(gamma);
    save(mean);
    save(inv_std);
  }

  std::string name() const override { return "batch_norm"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "batch_norm",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const Tensor &x = saved()[0], &gamma = saved()[1], &mean = saved()[2], &inv_std = saved()[3];
    const std::int64_t channels = gamma.size();
    Tensor grad_x = needs_grad(0) ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
    Tensor grad_gamma = Tensor::empty({channels}, x.dtype(), x.device());
    Tensor grad_beta = Tensor::empty({channels}, x.dtype(), x.device());
    run(x.device(),
        kernels::BatchNormBackward<T>{.rows = x.size() / channels,
                                      .channels = channels,
                                      .batch_statistics = batch_statistics_,
                                      .x = x.data<T>(),
                                      .grad_y = grad_output.data<T>(),
                                      .mean = mean.data<T>(),
                                      .inv_std = inv_std.data<T>(),
                                      .gamma = gamma.data<T>(),
                                      .grad_x = grad_x.defined() ? grad_x.data<T>() : nullptr,
                                      .grad_gamma = grad_gamma.data<T>(),
                                      .grad_beta = grad_beta.data<T>()});
    return {grad_x, needs_grad(1) ? grad_gamma : Tensor(), needs_grad(2) ? grad_beta : Tensor()};
  }

  bool batch_statistics_;
};

template <typename T>
Moments batch_moments(const Tensor& x, const BatchNormState& state) {
  const std::int64_t channels = x.dim(-1);
  const std::int64_t rows = x.size() / channels;
  Tensor mean = Tensor::empty({channels}, x.dtype(), x.device());
  Tensor variance = Tensor::empty({channels}, x.dtype(), x.device());
  run(x.device(), kernels::BatchMoments<T>{.rows = rows,
                                           .channels = channels,
                                           .x = x.data<T>(),
                                           .mean = mean.data<T>(),
                                           .variance = variance.data<T>()});
  update_running_statistics(state, mean, variance, rows);
  return {mean, variance};
}

void require_running(const char* what, const Tensor& running, std::int64_t channels) {
  if (!running.defined() || running.shape() != Shape{channels} || !is_floating(running.dtype())) {
    ops::fail("batch_norm", what + (" [" + std::to_string(channels) + "]"),
              shape_string(running.shape()));
  }
}

void mark_changed(const BatchNormState& state) {
  state.running_mean.mark_changed();
  state.running_var.mark_changed();
}

void require_arguments(const Variable& x, const Variable& gamma, const Variable& beta,
                       const BatchNormState& state) {
  ops::require_defined("batch_norm", "an input", x);
  ops::require_defined("batch_norm", "gamma", gamma);
  ops::require_defined("batch_norm", "beta", beta);
  if (x.shape().size() < 2 || x.dim(-1) < 1) {
    ops::fail("batch_norm", "input [..., C] of rank 2 or more", shape_string(x.shape()));
  }
  const std::int64_t channels = x.dim(-1);
  ops::require_vector("batch_norm", "gamma", channels, gamma);
  ops::require_vector("batch_norm", "beta", channels, beta);
  ops::require_same_dtype("batch_norm", "gamma", x, gamma);
  ops::require_same_dtype("batch_norm", "beta", x, beta);
  require_running("running_mean", state.running_mean, channels);
  require_running("running_var", state.running_var, channels);
  if (state.running_var.dtype() != state.running_mean.dtype()) {
    ops::fail("batch_norm", "running_var of the dtype of running_mean",
              std::string(dtype_name(state.running_var.dtype())));
  }
  if (state.batch_statistics && shape_size(x.shape()) / channels < 2) {
    ops::fail("batch_norm", "more than one value per channel for batch statistics",
              shape_string(x.shape()));
  }
}

}  // namespace

void update_running_statistics(const BatchNormState& state, const Tensor& mean,
                               const Tensor& variance, std::int64_t rows) {
  const double n = static_cast<double>(rows);
  visit_floating(mean.dtype(), "batch_norm", [&](auto zero) {
    using T = decltype(zero);
    visit_floating(state.running_mean.dtype(), "batch_norm", [&](auto running_zero) {
      using R = decltype(running_zero);
      if (state.gathered.defined()) {
        return run(mean.device(),
                   kernels::GatherMoments<T, R>{.n = mean.size(),
                                                .rows = n,
                                                .mean = mean.data<T>(),
                                                .variance = variance.data<T>(),
                                                .running_mean = state.running_mean.data<R>(),
                                                .sums = state.gathered.data<double>()});
      }
      run(mean.device(),
          kernels::MoveRunningStatistics<T, R>{.n = mean.size(),
                                               .momentum = state.momentum,
                                               .factor = n / (n - 1.0),
                                               .mean = mean.data<T>(),
                                               .variance = variance.data<T>(),
                                               .running_mean = state.running_mean.data<R>(),
                                               .running_variance = state.running_var.data<R>()});
      mark_changed(state);
    });
  });
}

void move_by_gathered_moments(const BatchNormState& state) {
  visit_floating(state.running_mean.dtype(), "batch_norm", [&](auto zero) {
    using R = decltype(zero);
    run(state.running_mean.device(),
        kernels::MoveByGatheredMoments<R>{.n = state.running_mean.size(),
                                          .momentum = state.momentum,
                                          .sums = state.gathered.data<double>(),
                                          .running_mean = state.running_mean.data<R>(),
                                          .running_variance = state.running_var.data<R>()});
  });
  mark_changed(state);
}

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormState& state) {
  require_arguments(x, gamma, beta, state);
  const Tensor& input = x.value();
  const std::int64_t channels = input.dim(-1);
  Tensor y = Tensor::empty(input.shape(), input.dtype(), input.device());
  const Tensor inv_std = Tensor::empty({channels}, input.dtype(), input.device());
  // Copies: the running tensors change in place, and a recorded operation must not.
  Moments moments{state.running_mean.to(input.dtype()), state.running_var.to(input.dtype())};
  visit_floating(x.dtype(), "batch_norm", [&](auto zero) {
    using T = decltype(zero);
    if (state.batch_statistics) moments = batch_moments<T>(input, state);
    const Tensor slope = Tensor::empty({channels}, input.dtype(), input.device());
    run(y.device(), kernels::InverseStd<T>{.n = channels,
                                           .variance = moments.variance.data<T>(),
                                           .gamma = gamma.value().data<T>(),
                                           .eps = state.eps,
                                           .inv_std = inv_std.data<T>(),
                                           .slope = slope.data<T>()});
    run(y.device(), kernels::BatchNorm<T>{.rows = input.size() / channels,
                                          .channels = channels,
                                          .x = input.data<T>(),
                                          .mean = moments.mean.data<T>(),
                                          .slope = slope.data<T>(),
                                          .beta = beta.value().data<T>(),
                                          .y = y.data<T>()});
  });
  if (!should_record({x, gamma, beta})) return Variable(y);
  return record(
      y, std::make_shared<BatchNormFunction>(state, input, gamma.value(), moments.mean, inv_std),
      {x, gamma, beta});
}

}  // namespace steelyard
