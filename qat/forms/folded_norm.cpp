#include "steelyard/qat/forms/folded_norm.h"

#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/forms/norm_after_fold.h"

namespace steelyard::qat {

FoldedNorm::FoldedNorm(std::shared_ptr<BatchNorm> norm, BatchNormFold mode)
    : norm_(std::move(norm)), mode_(mode) {
  if (mode == BatchNormFold::kFrozen) {
    throw std::invalid_argument("[FoldedNorm] expected a mode that keeps the norm, got frozen");
  }
  register_child("", norm_);
}

bool FoldedNorm::normalizes(const ForwardContext& context) const {
  return mode_ == BatchNormFold::kNone || norm_->state(context).batch_statistics;
}

bool FoldedNorm::recovers(const BatchNormState& state) const {
  return state.batch_statistics && (mode_ == BatchNormFold::kOneConvolution || reestimating_);
}

Tensor FoldedNorm::safe_gamma() const {
  const Tensor& gamma = norm_->weight().value();
  Tensor safe = Tensor::empty(gamma.shape(), DType::kF32, gamma.device());
  run(gamma.device(), kernels::KeepFromZero<float>{.n = gamma.size(),
                                                   .smallest = kSmallestGamma,
                                                   .x = gamma.data<float>(),
                                                   .y = safe.data<float>()});
  return safe;
}

ProductOperands FoldedNorm::operands(const Variable& weight, const Variable& bias,
                                     const ForwardContext& context) const {
  if (mode_ == BatchNormFold::kNone) {
    return {weight, bias, bias.defined() ? bias.value() : Tensor()};
  }
  const BatchNormState state = norm_->state(context);
  const Variable folded_bias = fold_bias(bias, norm_->weight(), norm_->bias(), state);
  const Variable gamma = recovers(state) ? Variable(safe_gamma()) : norm_->weight();
  return {fold_weight(weight, gamma, state), state.batch_statistics ? Variable() : folded_bias,
          folded_bias.value()};
}

std::vector<double> FoldedNorm::factors() const {
  const Tensor std_dev = running_std(norm_->state(ForwardContext{})).to(Device{});
  const Tensor gamma = norm_->weight().value().to(Device{});
  std::vector<double> factors;
  for (std::int64_t c = 0; c < gamma.size(); ++c) {
    factors.push_back(double{gamma.data<float>()[c]} / std_dev.data<double>()[c]);
  }
  return factors;
}

Variable FoldedNorm::normalize(const Variable& product, const Variable& bias,
                               const std::function<Variable()>& raw_product,
                               ForwardContext& context) const {
  if (mode_ == BatchNormFold::kNone) return norm_->forward(product, context);
  const BatchNormState state = norm_->state(context);
  const Variable& gamma = norm_->weight();
  const Variable& beta = norm_->bias();
  const Tensor offset = bias.defined() ? bias.value() : Tensor();
  Variable y;
  if (recovers(state)) {
    const Tensor folded_gamma = safe_gamma();
    const Tensor std_dev = running_std(state);
    const Tensor factor = Tensor::empty(std_dev.shape(), DType::kF64, std_dev.device());
    run(factor.device(), kernels::FoldFactor<float>{.n = factor.size(),
                                                    .gamma = folded_gamma.data<float>(),
                                                    .std_dev = std_dev.data<double>(),
                                                    .factor = factor.data<double>()});
    y = recovered_batch_norm(product, factor, gamma, beta, offset, state);
  } else {
    y = corrected_batch_norm(product, raw_product(), gamma, beta, offset, state);
  }
  norm_->count_batch();
  return y;
}

}  // namespace steelyard::qat
