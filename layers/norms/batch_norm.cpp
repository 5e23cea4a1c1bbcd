#include "steelyard/layers/norms/batch_norm.h"

#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/counter/counter.h"

namespace steelyard {
namespace {

const BatchNormOptions& checked(const BatchNormOptions& o) {
  if (o.channels < 1 || !(o.eps > 0.0) || !(o.momentum >= 0.0 && o.momentum <= 1.0)) {
    throw std::invalid_argument(
        "[BatchNorm] expected channels >= 1, eps > 0 and momentum in [0, 1], got " +
        std::to_string(o.channels) + ", " + std::to_string(o.eps) + " and " +
        std::to_string(o.momentum));
  }
  return o;
}

}  // namespace

BatchNorm::BatchNorm(const BatchNormOptions& options)
    : options_(checked(options)),
      weight_(register_parameter("weight", Tensor::full({options.channels}, 1.0))),
      bias_(register_parameter("bias", Tensor::zeros({options.channels}))),
      running_mean_(register_buffer("running_mean", Tensor::zeros({options.channels}))),
      running_var_(register_buffer("running_var", Tensor::full({options.channels}, 1.0))),
      num_batches_tracked_(
          register_buffer("num_batches_tracked", Tensor::zeros(Shape{}, DType::kI64))) {}

Variable BatchNorm::forward(const Variable& x, ForwardContext& context) {
  const BatchNormState used = state(context);
  Variable y = batch_norm(x, weight_, bias_, used);
  if (used.batch_statistics) count_batch();
  return y;
}

void BatchNorm::count_batch() {
  if (gathered_.defined()) return;
  run(num_batches_tracked_.device(),
      kernels::CountOne{.counter = num_batches_tracked_.data<std::int64_t>()});
}

BatchNormState BatchNorm::state(const ForwardContext& context) const {
  return {.running_mean = running_mean_,
          .running_var = running_var_,
          .eps = options_.eps,
          .momentum = options_.momentum,
          .batch_statistics = context.training && !frozen_,
          .gathered = gathered_};
}

void BatchNorm::begin_step() {
  gathered_ = Tensor::zeros({3, options_.channels}, DType::kF64, running_mean_.device());
}

void BatchNorm::end_step() {
  move_by_gathered_moments(state({}));
  run(num_batches_tracked_.device(),
      kernels::CountIfPositive{.value = gathered_.data<double>(),
                               .counter = num_batches_tracked_.data<std::int64_t>()});
  gathered_ = Tensor();
}

void BatchNorm::set_momentum(double momentum) {
  BatchNormOptions changed = options_;
  changed.momentum = momentum;
  options_ = checked(changed);
}

std::string BatchNorm::description() const {
  return type_name() + "(" + std::to_string(options_.channels) + (frozen_ ? ", frozen)" : ")");
}

}  // namespace steelyard
