#include "steelyard/qat/forms/fold.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"

namespace steelyard::qat {
namespace {

std::int64_t inner_size(const Tensor& weight, std::int64_t channels) {
  return channels == 0 ? 0 : weight.size() / channels;
}

class FoldWeightFunction : public Function {
 public:
  FoldWeightFunction(const Tensor& weight, const Tensor& gamma, Tensor std_dev)
      : std_dev_(std::move(std_dev)) {
    save(weight);
    save(gamma);
  }
  std::string name() const override { return "fold_weight"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "fold_weight",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const Tensor &weight = saved()[0], &gamma = saved()[1];
    const Device device = grad_output.device();
    Tensor grad_weight = Tensor::empty(weight.shape(), weight.dtype(), device);
    Tensor grad_gamma = Tensor::empty(gamma.shape(), gamma.dtype(), device);
    run(device, kernels::FoldWeightBackward<T>{.rows = gamma.size(),
                                               .columns = inner_size(weight, gamma.size()),
                                               .weight = weight.data<T>(),
                                               .gamma = gamma.data<T>(),
                                               .std_dev = std_dev_.data<double>(),
                                               .grad_folded = grad_output.data<T>(),
                                               .grad_weight = grad_weight.data<T>(),
                                               .grad_gamma = grad_gamma.data<T>()});
    return {needs_grad(0) ? grad_weight : Tensor(), needs_grad(1) ? grad_gamma : Tensor()};
  }

  Tensor std_dev_;
};

// Inputs: gamma, beta and, where the layer has one, its bias.
class FoldBiasFunction : public Function {
 public:
  FoldBiasFunction(const Tensor& gamma, Tensor std_dev, Tensor centred_bias)
      : std_dev_(std::move(std_dev)), centred_bias_(std::move(centred_bias)) {
    save(gamma);
  }
  std::string name() const override { return "fold_bias"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return visit_floating(grad_output.dtype(), "fold_bias",
                          [&](auto zero) { return gradients<decltype(zero)>(grad_output); });
  }

 private:
  template <typename T>
  std::vector<Tensor> gradients(const Tensor& grad_output) const {
    const Tensor& gamma = saved()[0];
    const Device device = grad_output.device();
    Tensor grad_gamma = Tensor::empty(gamma.shape(), gamma.dtype(), device);
    Tensor grad_bias = Tensor::empty(gamma.shape(), gamma.dtype(), device);
    run(device, kernels::FoldBiasBackward<T>{.n = gamma.size(),
                                             .grad_folded = grad_output.data<T>(),
                                             .gamma = gamma.data<T>(),
                                             .std_dev = std_dev_.data<double>(),
                                             .centred = centred_bias_.data<double>(),
                                             .grad_gamma = grad_gamma.data<T>(),
                                             .grad_bias = grad_bias.data<T>()});
    std::vector<Tensor> grads{needs_grad(0) ? grad_gamma : Tensor(),
                              needs_grad(1) ? grad_output : Tensor()};
    if (inputs().size() > 2) grads.push_back(needs_grad(2) ? grad_bias : Tensor());
    return grads;
  }

  Tensor std_dev_;
  Tensor centred_bias_;  // f64 [C]: bias - mean
};

}  // namespace

Tensor running_std(const BatchNormState& state) {
  const Tensor& variance = state.running_var;
  Tensor values = Tensor::empty(variance.shape(), DType::kF64, variance.device());
  visit_floating(variance.dtype(), "fold_batch_norm", [&](auto zero) {
    using R = decltype(zero);
    run(variance.device(), kernels::RunningStd<R>{.n = variance.size(),
                                                  .variance = variance.data<R>(),
                                                  .eps = state.eps,
                                                  .std_dev = values.data<double>()});
  });
  return values;
}

Variable fold_weight(const Variable& weight, const Variable& gamma, const BatchNormState& state) {
  Tensor std_dev = running_std(state);
  const std::int64_t channels = weight.dim(0);
  if (std_dev.size() != channels) {
    ops::fail("fold_batch_norm", std::to_string(channels) + " channels",
              std::to_string(std_dev.size()));
  }
  ops::require_vector("fold_batch_norm", "gamma", channels, gamma);
  ops::require_same_dtype("fold_batch_norm", "gamma", weight, gamma);
  const Device device = weight.value().device();
  Tensor folded = Tensor::empty(weight.shape(), weight.dtype(), device);
  visit_floating(weight.dtype(), "fold_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    run(device, kernels::FoldWeight<T>{.layout = {1, channels, inner_size(folded, channels)},
                                       .weight = weight.value().data<T>(),
                                       .gamma = gamma.value().data<T>(),
                                       .std_dev = std_dev.data<double>(),
                                       .folded = folded.data<T>()});
  });
  if (!should_record({weight, gamma})) return Variable(folded);
  return record(
      folded,
      std::make_shared<FoldWeightFunction>(weight.value(), gamma.value(), std::move(std_dev)),
      {weight, gamma});
}

Variable fold_bias(const Variable& bias, const Variable& gamma, const Variable& beta,
                   const BatchNormState& state) {
  const Tensor std_dev = running_std(state);
  const std::int64_t channels = std_dev.size();
  ops::require_vector("fold_batch_norm", "bias", channels, bias);
  ops::require_same_dtype("fold_batch_norm", "bias", gamma, bias);
  const Device device = gamma.value().device();
  const Tensor centred = Tensor::empty({channels}, DType::kF64, device);
  Tensor folded = Tensor::empty({channels}, gamma.dtype(), device);
  visit_floating(gamma.dtype(), "fold_batch_norm", [&](auto value_tag) {
    visit_floating(state.running_mean.dtype(), "fold_batch_norm", [&](auto running_tag) {
      using T = decltype(value_tag);
      using R = decltype(running_tag);
      const T* offset = bias.defined() ? bias.value().data<T>() : nullptr;
      run(device, kernels::FoldBias<T, R>{.n = channels,
                                          .bias = offset,
                                          .gamma = gamma.value().data<T>(),
                                          .beta = beta.value().data<T>(),
                                          .mean = state.running_mean.data<R>(),
                                          .std_dev = std_dev.data<double>(),
                                          .centred = centred.data<double>(),
                                          .folded = folded.data<T>()});
    });
  });
  if (!should_record({gamma, beta, bias})) return Variable(folded);
  return record(folded, std::make_shared<FoldBiasFunction>(gamma.value(), std_dev, centred),
                {gamma, beta, bias});
}

FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm& norm) {
  const NoGradGuard no_grad;
  const BatchNormState state = norm.state(ForwardContext{});
  return {fold_weight(Variable(weight), norm.weight(), state).value(),
          fold_bias(bias.defined() ? Variable(bias) : Variable(), norm.weight(), norm.bias(), state)
              .value()};
}

}  // namespace steelyard::qat
