#include "qat/norm_after_fold.h"

#include <cmath>

#include "framework/ops/op_support.h"
#include "kernels/norm.h"
#include "qat/fold.h"

namespace steelyard::qat {
namespace {

std::int64_t rows_of(const Tensor& x) { return x.size() / x.dim(-1); }

// [C] of the value f(channel).
template <typename T, typename F>
Tensor per_channel(std::int64_t channels, const F& f) {
  Tensor result = Tensor::empty({channels}, DTypeOf<T>::value);
  for (std::int64_t c = 0; c < channels; ++c) result.data<T>()[c] = static_cast<T>(f(c));
  return result;
}

// (x - mean) * slope + shift per channel.
template <typename T>
Tensor channel_map(const Tensor& x, const Tensor& mean, const Tensor& slope, const Tensor& shift) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const Tensor ones = Tensor::full(mean.shape(), 1.0, x.dtype());
  kernels::batch_norm_forward<T>(rows_of(x), x.dim(-1), x.data<T>(), mean.data<T>(),
                                 slope.data<T>(), ones.data<T>(), shift.data<T>(), y.data<T>());
  return y;
}

struct Moments {
  Tensor mean;
  Tensor variance;  // biased
};

template <typename T>
Moments batch_moments(const Tensor& x) {
  Moments moments{Tensor::empty({x.dim(-1)}, x.dtype()), Tensor::empty({x.dim(-1)}, x.dtype())};
  kernels::batch_moments<T>(rows_of(x), x.dim(-1), x.data<T>(), moments.mean.data<T>(),
                            moments.variance.data<T>());
  return moments;
}

template <typename T>
double at(const Tensor& values, std::int64_t channel) {
  return values.defined() ? static_cast<double>(values.data<T>()[channel]) : 0.0;
}

class CorrectedBatchNormFunction : public Function {
 public:
  CorrectedBatchNormFunction(const Tensor& product, const Tensor& raw, const Tensor& gamma,
                             const Tensor& mean, const Tensor& inv_std, std::vector<double> running)
      : running_std_(std::move(running)) {
    save(product);
    save(raw);
    save(gamma);
    save(mean);
    save(inv_std);
  }
  std::string name() const override { return "corrected_batch_norm"; }

  // With these, y = (product - hidden_mean) * ratio + beta.
  template <typename T>
  Tensor ratio() const {
    return per_channel<T>(mean().size(),
                          [&](std::int64_t c) { return running(c) * at<T>(inv_std(), c); });
  }
  template <typename T>
  Tensor hidden_mean() const {
    return per_channel<T>(mean().size(), [&](std::int64_t c) {
      return at<T>(gamma(), c) * at<T>(mean(), c) / running(c);
    });
  }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "corrected_batch_norm",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad) const {
    const Tensor &product = saved()[0], &raw = saved()[1];
    const std::int64_t channels = grad.dim(-1), rows = rows_of(grad);
    const Tensor ones = Tensor::full({channels}, 1.0, grad.dtype());
    Tensor grad_product = Tensor::empty(grad.shape(), grad.dtype());
    Tensor grad_ratio = Tensor::empty({channels}, grad.dtype());  // times the ratio
    Tensor grad_beta = Tensor::empty({channels}, grad.dtype());
    kernels::batch_norm_backward_frozen<T>(
        rows, channels, product.data<T>(), grad.data<T>(), hidden_mean<T>().template data<T>(),
        ratio<T>().template data<T>(), ones.data<T>(), grad_product.data<T>(), grad_ratio.data<T>(),
        grad_beta.data<T>());
    const Tensor grad_gamma = per_channel<T>(channels, [&](std::int64_t c) {
      return -at<T>(inv_std(), c) * at<T>(mean(), c) * at<T>(grad_beta, c);
    });
    std::vector<Tensor> grads{grad_product, Tensor(), grad_gamma, grad_beta};
    if (needs_grad(1)) {
      const Tensor slope = per_channel<T>(channels, [&](std::int64_t c) {
        return -at<T>(inv_std(), c) * at<T>(inv_std(), c) * at<T>(grad_ratio, c) / double(rows);
      });
      const Tensor shift = per_channel<T>(channels, [&](std::int64_t c) {
        return -at<T>(gamma(), c) * at<T>(inv_std(), c) * at<T>(grad_beta, c) / double(rows);
      });
      grads[1] = channel_map<T>(raw, mean(), slope, shift);
    }
    return grads;
  }

  const Tensor& gamma() const { return saved()[2]; }
  const Tensor& mean() const { return saved()[3]; }
  const Tensor& inv_std() const { return saved()[4]; }
  double running(std::int64_t channel) const {
    return running_std_[static_cast<std::size_t>(channel)];
  }

  std::vector<double> running_std_;
};

// The batch norm of product / factor, seen from the product: the same formula with a standard
// deviation that was multiplied by the factor, sign included.
class RecoveredBatchNormFunction : public Function {
 public:
  RecoveredBatchNormFunction(const Tensor& product, const Tensor& gamma, const Tensor& mean,
                             const Tensor& inv_std) {
    save(product);
    save(gamma);
    save(mean);
    save(inv_std);
  }
  std::string name() const override { return "recovered_batch_norm"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "recovered_batch_norm",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad) const {
    const Tensor &product = saved()[0], &gamma = saved()[1], &mean = saved()[2];
    Tensor grad_product = Tensor::empty(grad.shape(), grad.dtype());
    Tensor grad_gamma = Tensor::empty(gamma.shape(), grad.dtype());
    Tensor grad_beta = Tensor::empty(gamma.shape(), grad.dtype());
    kernels::batch_norm_backward_training<T>(rows_of(grad), gamma.size(), product.data<T>(),
                                             grad.data<T>(), mean.data<T>(), saved()[3].data<T>(),
                                             gamma.data<T>(), grad_product.data<T>(),
                                             grad_gamma.data<T>(), grad_beta.data<T>());
    return {grad_product, grad_gamma, grad_beta};
  }
};

void require_arguments(const char* op, const Variable& product, const Variable& gamma,
                       const Variable& beta, const BatchNormState& state) {
  const std::int64_t channels = product.dim(-1);
  ops::require_vector(op, "gamma", channels, gamma);
  ops::require_vector(op, "beta", channels, beta);
  ops::require_same_dtype(op, "gamma", product, gamma);
  ops::require_same_dtype(op, "beta", product, beta);
  if (state.running_var.shape() != Shape{channels}) {
    ops::fail(op, "running_var [" + std::to_string(channels) + "]",
              shape_string(state.running_var.shape()));
  }
  if (shape_size(product.shape()) < 2 * channels) {
    ops::fail(op, "more than one value per channel for batch statistics",
              shape_string(product.shape()));
  }
}

}  // namespace

Variable corrected_batch_norm(const Variable& product, const Variable& raw, const Variable& gamma,
                              const Variable& beta, const Tensor& offset,
                              const BatchNormState& state) {
  require_arguments("corrected_batch_norm", product, gamma, beta, state);
  if (raw.shape() != product.shape()) {
    ops::fail("corrected_batch_norm", "equal shapes",
              shape_string(product.shape()) + " and " + shape_string(raw.shape()));
  }
  return visit_floating(product.dtype(), "corrected_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t channels = product.dim(-1);
    const Moments moments = batch_moments<T>(raw.value());
    const Tensor inv_std = per_channel<T>(channels, [&](std::int64_t c) {
      return 1.0 / std::sqrt(at<T>(moments.variance, c) + state.eps);
    });
    auto function = std::make_shared<CorrectedBatchNormFunction>(
        product.value(), raw.value(), gamma.value(), moments.mean, inv_std, running_std(state));
    const Tensor shifted = per_channel<T>(
        channels, [&](std::int64_t c) { return at<T>(moments.mean, c) + at<T>(offset, c); });
    update_running_statistics(state, shifted, moments.variance, rows_of(raw.value()));
    Tensor y = channel_map<T>(product.value(), function->template hidden_mean<T>(),
                              function->template ratio<T>(), beta.value());
    if (!should_record({product, raw, gamma, beta})) return Variable(y);
    return record(y, std::move(function), {product, raw, gamma, beta});
  });
}

Variable recovered_batch_norm(const Variable& product, const std::vector<double>& factor,
                              const Variable& gamma, const Variable& beta, const Tensor& offset,
                              const BatchNormState& state) {
  require_arguments("recovered_batch_norm", product, gamma, beta, state);
  return visit_floating(product.dtype(), "recovered_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t channels = product.dim(-1);
    const auto factor_of = [&](std::int64_t c) { return factor[static_cast<std::size_t>(c)]; };
    const Moments hidden = batch_moments<T>(product.value());
    const Tensor mean = per_channel<T>(channels, [&](std::int64_t c) {
      return at<T>(hidden.mean, c) / factor_of(c) + at<T>(offset, c);
    });
    const Tensor variance = per_channel<T>(channels, [&](std::int64_t c) {
      return at<T>(hidden.variance, c) / (factor_of(c) * factor_of(c));
    });
    const Tensor inv_std = per_channel<T>(channels, [&](std::int64_t c) {
      return 1.0 / (factor_of(c) * std::sqrt(at<T>(variance, c) + state.eps));
    });
    update_running_statistics(state, mean, variance, rows_of(product.value()));
    Tensor y = Tensor::empty(product.shape(), product.dtype());
    kernels::batch_norm_forward<T>(rows_of(y), channels, product.value().template data<T>(),
                                   hidden.mean.template data<T>(), inv_std.template data<T>(),
                                   gamma.value().template data<T>(),
                                   beta.value().template data<T>(), y.data<T>());
    if (!should_record({product, gamma, beta})) return Variable(y);
    return record(y,
                  std::make_shared<RecoveredBatchNormFunction>(product.value(), gamma.value(),
                                                               hidden.mean, inv_std),
                  {product, gamma, beta});
  });
}

}  // namespace steelyard::qat
