#include "steelyard/qat/forms/norm_after_fold.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/norm/norm.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"
#include "steelyard/qat/forms/fold.h"

namespace steelyard::qat {
namespace {

std::int64_t rows_of(const Tensor& x) { return x.size() / x.dim(-1); }

// [C], to be filled.
Tensor per_channel(const Tensor& like) {
  return Tensor::empty({like.dim(-1)}, like.dtype(), like.device());
}

// (x - mean) * slope + shift per channel.
template <typename T>
Tensor channel_map(const Tensor& x, const Tensor& mean, const Tensor& slope, const Tensor& shift) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  run(x.device(), kernels::BatchNorm<T>{.rows = rows_of(x),
                                        .channels = x.dim(-1),
                                        .x = x.data<T>(),
                                        .mean = mean.data<T>(),
                                        .slope = slope.data<T>(),
                                        .beta = shift.data<T>(),
                                        .y = y.data<T>()});
  return y;
}

struct Moments {
  Tensor mean;
  Tensor variance;  // biased
};

template <typename T>
Moments batch_moments(const Tensor& x) {
  Moments moments{per_channel(x), per_channel(x)};
  run(x.device(), kernels::BatchMoments<T>{.rows = rows_of(x),
                                           .channels = x.dim(-1),
                                           .x = x.data<T>(),
                                           .mean = moments.mean.data<T>(),
                                           .variance = moments.variance.data<T>()});
  return moments;
}

// With these, y = (product - hidden_mean) * ratio + beta.
struct HiddenNorm {
  Tensor ratio;
  Tensor hidden_mean;
};

class CorrectedBatchNormFunction : public Function {
 public:
  CorrectedBatchNormFunction(const Tensor& product, const Tensor& raw, const Tensor& gamma,
                             const Tensor& mean, const Tensor& inv_std, HiddenNorm hidden)
      : hidden_(std::move(hidden)) {
    save(product);
    save(raw);
    save(gamma);
    save(mean);
    save(inv_std);
  }
  std::string name() const override { return "corrected_batch_norm"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "corrected_batch_norm",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad) const {
    const Tensor &product = saved()[0], &raw = saved()[1], &gamma = saved()[2], &mean = saved()[3],
                 &inv_std = saved()[4];
    const std::int64_t channels = grad.dim(-1), rows = rows_of(grad);
    const Tensor ones = Tensor::full({channels}, 1.0, grad.dtype(), grad.device());
    Tensor grad_product = Tensor::empty(grad.shape(), grad.dtype(), grad.device());
    Tensor grad_ratio = per_channel(grad);  // times the ratio
    Tensor grad_beta = per_channel(grad);
    Tensor grad_gamma = per_channel(grad), slope = per_channel(grad), shift = per_channel(grad);
    run(grad.device(), kernels::BatchNormBackward<T>{.rows = rows,
                                                     .channels = channels,
                                                     .batch_statistics = false,
                                                     .x = product.data<T>(),
                                                     .grad_y = grad.data<T>(),
                                                     .mean = hidden_.hidden_mean.data<T>(),
                                                     .inv_std = hidden_.ratio.data<T>(),
                                                     .gamma = ones.data<T>(),
                                                     .grad_x = grad_product.data<T>(),
                                                     .grad_gamma = grad_ratio.data<T>(),
                                                     .grad_beta = grad_beta.data<T>()});
    run(grad.device(), kernels::CorrectedNormBackward<T>{.n = channels,
                                                         .rows = rows,
                                                         .gamma = gamma.data<T>(),
                                                         .mean = mean.data<T>(),
                                                         .inv_std = inv_std.data<T>(),
                                                         .grad_ratio = grad_ratio.data<T>(),
                                                         .grad_beta = grad_beta.data<T>(),
                                                         .grad_gamma = grad_gamma.data<T>(),
                                                         .slope = slope.data<T>(),
                                                         .shift = shift.data<T>()});
    return {grad_product, needs_grad(1) ? channel_map<T>(raw, mean, slope, shift) : Tensor(),
            grad_gamma, grad_beta};
  }

  HiddenNorm hidden_;
};

// The batch norm of product / factor, as a function of the product: the same formula, with the
// standard deviation multiplied by the factor, sign included.
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
    Tensor grad_product = Tensor::empty(grad.shape(), grad.dtype(), grad.device());
    Tensor grad_gamma = per_channel(grad);
    Tensor grad_beta = per_channel(grad);
    run(grad.device(), kernels::BatchNormBackward<T>{.rows = rows_of(grad),
                                                     .channels = gamma.size(),
                                                     .batch_statistics = true,
                                                     .x = product.data<T>(),
                                                     .grad_y = grad.data<T>(),
                                                     .mean = mean.data<T>(),
                                                     .inv_std = saved()[3].data<T>(),
                                                     .gamma = gamma.data<T>(),
                                                     .grad_x = grad_product.data<T>(),
                                                     .grad_gamma = grad_gamma.data<T>(),
                                                     .grad_beta = grad_beta.data<T>()});
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
    const Moments moments = batch_moments<T>(raw.value());
    const Tensor inv_std = per_channel(raw.value()), shifted = per_channel(raw.value());
    const HiddenNorm hidden{per_channel(raw.value()), per_channel(raw.value())};
    const Tensor std_dev = running_std(state);
    run(std_dev.device(),
        kernels::CorrectedNormTerms<T>{.n = std_dev.size(),
                                       .gamma = gamma.value().data<T>(),
                                       .mean = moments.mean.data<T>(),
                                       .variance = moments.variance.data<T>(),
                                       .eps = state.eps,
                                       .std_dev = std_dev.data<double>(),
                                       .offset = data_or_null<T>(offset),
                                       .inv_std = inv_std.data<T>(),
                                       .ratio = hidden.ratio.data<T>(),
                                       .hidden_mean = hidden.hidden_mean.data<T>(),
                                       .shifted_mean = shifted.data<T>()});
    update_running_statistics(state, shifted, moments.variance, rows_of(raw.value()));
    Tensor y = channel_map<T>(product.value(), hidden.hidden_mean, hidden.ratio, beta.value());
    if (!should_record({product, raw, gamma, beta})) return Variable(y);
    return record(y,
                  std::make_shared<CorrectedBatchNormFunction>(
                      product.value(), raw.value(), gamma.value(), moments.mean, inv_std, hidden),
                  {product, raw, gamma, beta});
  });
}

Variable recovered_batch_norm(const Variable& product, const Tensor& factor, const Variable& gamma,
                              const Variable& beta, const Tensor& offset,
                              const BatchNormState& state) {
  require_arguments("recovered_batch_norm", product, gamma, beta, state);
  return visit_floating(product.dtype(), "recovered_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const Tensor& x = product.value();
    const std::int64_t channels = x.dim(-1);
    const Moments hidden = batch_moments<T>(x);
    const Moments moments{per_channel(x), per_channel(x)};
    const Tensor inv_std = per_channel(x), slope = per_channel(x);
    run(x.device(), kernels::RecoveredNormTerms<T>{.n = channels,
                                                   .factor = factor.data<double>(),
                                                   .product_mean = hidden.mean.data<T>(),
                                                   .product_variance = hidden.variance.data<T>(),
                                                   .eps = state.eps,
                                                   .offset = data_or_null<T>(offset),
                                                   .gamma = gamma.value().data<T>(),
                                                   .mean = moments.mean.data<T>(),
                                                   .variance = moments.variance.data<T>(),
                                                   .inv_std = inv_std.data<T>(),
                                                   .slope = slope.data<T>()});
    Tensor y = channel_map<T>(x, hidden.mean, slope, beta.value());
    update_running_statistics(state, moments.mean, moments.variance, rows_of(x));
    if (!should_record({product, gamma, beta})) return Variable(y);
    return record(
        y, std::make_shared<RecoveredBatchNormFunction>(x, gamma.value(), hidden.mean, inv_std),
        {product, gamma, beta});
  });
}

}  // namespace steelyard::qat
