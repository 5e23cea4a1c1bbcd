#include "qat/fold.h"

#include <cmath>

#include "framework/ops/op_support.h"

namespace steelyard::qat {
namespace {

std::vector<double> wide(const Tensor& values) {
  const Tensor copy = values.to(DType::kF64);
  return {copy.span<double>().begin(), copy.span<double>().end()};
}

std::size_t index(std::int64_t channel) { return static_cast<std::size_t>(channel); }

class FoldWeightFunction : public Function {
 public:
  FoldWeightFunction(const Tensor& weight, const Tensor& gamma, std::vector<double> std_dev)
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
    const std::int64_t channels = gamma.size();
    const std::int64_t inner = channels == 0 ? 0 : weight.size() / channels;
    Tensor grad_weight = Tensor::empty(weight.shape(), weight.dtype());
    Tensor grad_gamma = Tensor::empty(gamma.shape(), gamma.dtype());
    const T* w = weight.data<T>();
    const T* grad = grad_output.data<T>();
    T* grad_w = grad_weight.data<T>();
    for (std::int64_t c = 0; c < channels; ++c) {
      const double factor = gamma.data<T>()[c] / std_dev_[index(c)];
      double sum = 0;
      for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
        grad_w[i] = static_cast<T>(grad[i] * factor);
        sum += static_cast<double>(grad[i]) * w[i];
      }
      grad_gamma.data<T>()[c] = static_cast<T>(sum / std_dev_[index(c)]);
    }
    return {needs_grad(0) ? grad_weight : Tensor(), needs_grad(1) ? grad_gamma : Tensor()};
  }

  std::vector<double> std_dev_;
};

// Inputs: gamma, beta and, where the layer has one, its bias.
class FoldBiasFunction : public Function {
 public:
  FoldBiasFunction(const Tensor& gamma, std::vector<double> std_dev,
                   std::vector<double> centred_bias)
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
    Tensor grad_gamma = Tensor::empty(gamma.shape(), gamma.dtype());
    Tensor grad_bias = Tensor::empty(gamma.shape(), gamma.dtype());
    for (std::int64_t c = 0; c < gamma.size(); ++c) {
      const double g = grad_output.data<T>()[c] / std_dev_[index(c)];
      grad_gamma.data<T>()[c] = static_cast<T>(g * centred_bias_[index(c)]);
      grad_bias.data<T>()[c] = static_cast<T>(g * gamma.data<T>()[c]);
    }
    std::vector<Tensor> grads{needs_grad(0) ? grad_gamma : Tensor(),
                              needs_grad(1) ? grad_output : Tensor()};
    if (inputs().size() > 2) grads.push_back(needs_grad(2) ? grad_bias : Tensor());
    return grads;
  }

  std::vector<double> std_dev_;
  std::vector<double> centred_bias_;  // bias - mean
};

}  // namespace

std::vector<double> running_std(const BatchNormState& state) {
  std::vector<double> values = wide(state.running_var);
  for (double& value : values) value = std::sqrt(value + state.eps);
  return values;
}

Variable fold_weight(const Variable& weight, const Variable& gamma, const BatchNormState& state) {
  std::vector<double> std_dev = running_std(state);
  const std::int64_t channels = weight.dim(0);
  if (static_cast<std::int64_t>(std_dev.size()) != channels) {
    ops::fail("fold_batch_norm", std::to_string(channels) + " channels",
              std::to_string(std_dev.size()));
  }
  ops::require_vector("fold_batch_norm", "gamma", channels, gamma);
  ops::require_same_dtype("fold_batch_norm", "gamma", weight, gamma);
  Tensor folded = Tensor::empty(weight.shape(), weight.dtype());
  visit_floating(weight.dtype(), "fold_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t inner = channels == 0 ? 0 : folded.size() / channels;
    const T* from = weight.value().data<T>();
    T* to = folded.data<T>();
    for (std::int64_t c = 0; c < channels; ++c) {
      const double factor = gamma.value().data<T>()[c] / std_dev[index(c)];
      for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
        to[i] = static_cast<T>(from[i] * factor);
      }
    }
  });
  if (!should_record({weight, gamma})) return Variable(folded);
  return record(
      folded,
      std::make_shared<FoldWeightFunction>(weight.value(), gamma.value(), std::move(std_dev)),
      {weight, gamma});
}

Variable fold_bias(const Variable& bias, const Variable& gamma, const Variable& beta,
                   const BatchNormState& state) {
  const std::vector<double> std_dev = running_std(state);
  const auto channels = static_cast<std::int64_t>(std_dev.size());
  ops::require_vector("fold_batch_norm", "bias", channels, bias);
  ops::require_same_dtype("fold_batch_norm", "bias", gamma, bias);
  std::vector<double> centred(std_dev.size(), 0.0);
  if (bias.defined()) centred = wide(bias.value());
  const std::vector<double> mean = wide(state.running_mean);
  Tensor folded = Tensor::empty({channels}, gamma.dtype());
  visit_floating(gamma.dtype(), "fold_batch_norm", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t c = 0; c < channels; ++c) {
      centred[index(c)] -= mean[index(c)];
      const double factor = gamma.value().data<T>()[c] / std_dev[index(c)];
      folded.data<T>()[c] = static_cast<T>(beta.value().data<T>()[c] + centred[index(c)] * factor);
    }
  });
  if (!should_record({gamma, beta, bias})) return Variable(folded);
  return record(folded,
                std::make_shared<FoldBiasFunction>(gamma.value(), std_dev, std::move(centred)),
                {gamma, beta, bias});
}

FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm2d& norm) {
  const NoGradGuard no_grad;
  const BatchNormState state = norm.state(ForwardContext{});
  return {fold_weight(Variable(weight), norm.weight(), state).value(),
          fold_bias(bias.defined() ? Variable(bias) : Variable(), norm.weight(), norm.bias(), state)
              .value()};
}

}  // namespace steelyard::qat
