#include "framework/optimizer.h"

#include <stdexcept>

#include "kernels/elementwise.h"

namespace steelyard {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("[optimizer] " + message);
}

bool in_unit_interval(double value) { return value >= 0.0 && value < 1.0; }

void append_state(const std::vector<NamedParameter>& parameters, const std::string& state,
                  const std::vector<Tensor>& tensors, std::vector<NamedBuffer>& all) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back({parameters[i].name + "/" + state, tensors[i]});
  }
}

}  // namespace

bool is_bias_or_norm(const NamedParameter& parameter) {
  const std::string_view name = parameter.name;
  return parameter.variable.shape().size() <= 1 || name == "bias" || name.ends_with(".bias");
}

Optimizer::Optimizer(std::vector<NamedParameter> parameters, double weight_decay,
                     const NoDecay& no_decay, const LrFactor& lr_factor)
    : parameters_(std::move(parameters)) {
  require(weight_decay >= 0.0, "expected weight_decay of at least 0");
  for (const NamedParameter& p : parameters_) {
    const DType dtype = p.variable.dtype();
    require(dtype == DType::kF32 || dtype == DType::kF64,
            "expected f32 or f64 for '" + p.name + "', got " + std::string(dtype_name(dtype)));
    weight_decays_.push_back(no_decay && no_decay(p) ? 0.0 : weight_decay);
    lr_factors_.push_back(lr_factor ? lr_factor(p) : 1.0);
    require(lr_factors_.back() >= 0.0,
            "expected a learning rate of at least 0 for '" + p.name + "'");
  }
}

void Optimizer::step(double lr) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Variable& v = parameters_[i].variable;
    if (v.requires_grad() && v.grad().defined()) update(i, lr * lr_factors_[i]);
  }
}

std::vector<Tensor> Optimizer::zeros_like_parameters() const {
  std::vector<Tensor> zeros;
  for (const NamedParameter& p : parameters_) {
    zeros.push_back(Tensor::zeros(p.variable.shape(), p.variable.dtype()));
  }
  return zeros;
}

Sgd::Sgd(std::vector<NamedParameter> parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.weight_decay, options.no_decay, options.lr_factor),
      options_(std::move(options)) {
  require(in_unit_interval(options_.momentum), "expected momentum in [0, 1)");
  require(!options_.nesterov || options_.momentum > 0.0, "nesterov needs momentum");
  if (options_.momentum > 0.0) momentum_ = zeros_like_parameters();
}

std::vector<NamedBuffer> Sgd::named_state() const {
  std::vector<NamedBuffer> all;
  append_state(parameters(), "momentum", momentum_, all);
  return all;
}

void Sgd::update(std::size_t i, double lr) {
  const Variable& v = parameters()[i].variable;
  const kernels::SgdStep step{lr, options_.momentum, weight_decay(i), options_.nesterov};
  visit_floating(v.dtype(), "sgd", [&](auto zero) {
    using T = decltype(zero);
    kernels::sgd_update<T>(v.value().size(), step, v.grad().data<T>(),
                           momentum_.empty() ? nullptr : momentum_[i].data<T>(),
                           v.value().data<T>());
  });
}

AdamW::AdamW(std::vector<NamedParameter> parameters, AdamWOptions options)
    : Optimizer(std::move(parameters), options.weight_decay, options.no_decay, options.lr_factor),
      options_(std::move(options)),
      exp_avg_(zeros_like_parameters()),
      exp_avg_sq_(zeros_like_parameters()) {
  require(in_unit_interval(options_.beta1), "expected beta1 in [0, 1)");
  require(in_unit_interval(options_.beta2), "expected beta2 in [0, 1)");
  require(options_.eps > 0.0, "expected eps above 0");
  for (std::size_t i = 0; i < this->parameters().size(); ++i) {
    steps_.push_back(Tensor::zeros(Shape{}, DType::kI64));
  }
}

std::vector<NamedBuffer> AdamW::named_state() const {
  std::vector<NamedBuffer> all;
  append_state(parameters(), "exp_avg", exp_avg_, all);
  append_state(parameters(), "exp_avg_sq", exp_avg_sq_, all);
  append_state(parameters(), "step", steps_, all);
  return all;
}

void AdamW::update(std::size_t i, double lr) {
  const Variable& v = parameters()[i].variable;
  const std::int64_t count = ++*steps_[i].data<std::int64_t>();
  const kernels::AdamWStep step{lr,           options_.beta1,  options_.beta2,
                                options_.eps, weight_decay(i), count};
  visit_floating(v.dtype(), "adamw", [&](auto zero) {
    using T = decltype(zero);
    kernels::adamw_update<T>(v.value().size(), step, v.grad().data<T>(), exp_avg_[i].data<T>(),
                             exp_avg_sq_[i].data<T>(), v.value().data<T>());
  });
}

}  // namespace steelyard
