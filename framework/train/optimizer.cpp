#include "steelyard/framework/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_map>

#include "steelyard/framework/autograd/fault_check.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/optimizer_step/optimizer_step.h"

namespace steelyard {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("[optimizer] " + message);
}

bool in_unit_interval(double value) { return value >= 0.0 && value < 1.0; }

kernels::AdamWStep rule_of(const AdamWOptions& options) {
  return {options.beta1, options.beta2, options.eps};
}

void require_unit(const StepUnit& unit, const NamedParameter& p) {
  const Tensor& units = unit.size;
  const Tensor& value = p.variable.value();
  const auto text = [](const Tensor& tensor) {
    return shape_string(tensor.shape()) + " " + std::string(dtype_name(tensor.dtype())) + " on " +
           device_name(tensor.device());
  };
  const bool like =
      !units.defined() || (units.shape() == value.shape() && units.dtype() == value.dtype() &&
                           units.device() == value.device());
  require(like, "expected a step unit like '" + p.name + "', " + text(value) + ", got " +
                    (like ? "" : text(units)));
  require(unit.count > 0, "expected a positive number of step units for '" + p.name + "'");
}

// Each parameter once, where no two have the same name, under which their state would be one.
std::vector<NamedParameter> checked(std::vector<NamedParameter> parameters) {
  std::unordered_map<std::string_view, const GradNode*> known;
  for (const NamedParameter& p : parameters) {
    const auto [first, is_new] = known.emplace(p.name, p.variable.node().get());
    if (is_new) continue;
    require(first->second != p.variable.node().get(), "'" + p.name + "' is given twice");
    require(false, "two parameters are named '" + p.name +
                       "': their state needs names, as named_parameters(prefix) gives them");
  }
  return distinct(std::move(parameters));
}

void append_state(const std::vector<NamedParameter>& parameters, const std::string& state,
                  const std::vector<Tensor>& tensors, std::vector<NamedBuffer>& all) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back({parameters[i].name + "/" + state, tensors[i]});
  }
}

}  // namespace

bool is_bias_or_norm(const NamedParameter& parameter) {
  const std::string_view name = parameter.name;
  const auto is = [name](std::string_view last) {
    return name == last || (name.ends_with(last) && name[name.size() - last.size() - 1] == '.');
  };
  const Shape& shape = parameter.variable.shape();
  if (shape.size() <= 1 || is("bias")) return true;
  const auto is_long = [](std::int64_t size) { return size > 1; };
  return is("value") && std::count_if(shape.begin(), shape.end(), is_long) <= 1;
}

Optimizer::Optimizer(std::vector<NamedParameter> parameters, double weight_decay,
                     const NoDecay& no_decay, const LrFactor& lr_factor,
                     const StepUnits& step_units, std::int64_t factors)
    : parameters_(checked(std::move(parameters))) {
  require(weight_decay >= 0.0, "expected weight_decay of at least 0");
  const Device device = parameters_.empty() ? Device{} : parameters_[0].variable.value().device();
  for (const NamedParameter& p : parameters_) {
    const Device own = p.variable.value().device();
    require(own == device,
            "expected '" + p.name + "' on " + device_name(device) + ", got " + device_name(own));
    const DType dtype = p.variable.dtype();
    require(dtype == DType::kF32 || dtype == DType::kF64,
            "expected f32 or f64 for '" + p.name + "', got " + std::string(dtype_name(dtype)));
    shapes_.push_back(p.variable.shape());
    weight_decays_.push_back(no_decay && no_decay(p) ? 0.0 : weight_decay);
    lr_factors_.push_back(lr_factor ? lr_factor(p) : 1.0);
    require(lr_factors_.back() >= 0.0,
            "expected a learning rate of at least 0 for '" + p.name + "'");
    units_.push_back(step_units ? step_units(p) : StepUnit());
    require_unit(units_.back(), p);
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  host_factors_ = Tensor::zeros({count, factors}, DType::kF64);
  factors_ = host_factors_.clone().to(device);
}

void Optimizer::step(double lr) {
  const FaultCheck* last = nullptr;  // a model's parameters come one after another
  for (const NamedParameter& p : parameters_) {
    const auto& check = p.variable.node()->check;
    if (check && check.get() != last) check->before_step();
    last = check.get();
  }
  prepare(lr);
  apply();
}

void Optimizer::prepare(double lr) {
  if (!(lr >= 0) || std::isinf(lr)) {
    ops::fail(type_name().c_str(), "a finite learning rate of 0 or more", ops::number_text(lr));
  }
  const std::int64_t each = host_factors_.dim(1);
  double* factors = host_factors_.data<double>();
  for (std::size_t i = 0; i < parameters_.size(); ++i, factors += each) {
    if (has_gradient(i)) write_factors(i, lr * lr_factors_[i], factors);
  }
  factors_.copy_from(host_factors_);
}

void Optimizer::apply() {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!has_gradient(i) || parameters_[i].variable.dtype() != dtype) continue;
      const Device own = parameters_[i].variable.value().device();
      require(own == device(), "'" + parameters_[i].name + "' moved to " + device_name(own) +
                                   " after the optimizer was made on " + device_name(device()));
      const Variable& v = parameters_[i].variable;
      require(v.shape() == shapes_[i] && v.grad().shape() == shapes_[i],
              "expected '" + parameters_[i].name + "' and its gradient " +
                  shape_string(shapes_[i]) + ", got " + shape_string(v.shape()) + " and " +
                  shape_string(v.grad().shape()));
      if (v.grad().dtype() != dtype) {
        ops::fail(
            "optimizer",
            "a gradient " + std::string(dtype_name(dtype)) + " of '" + parameters_[i].name + "'",
            std::string(dtype_name(v.grad().dtype())));
      }
      chosen.push_back(i);
    }
    if (!chosen.empty()) update(dtype, chosen);
    for (const std::size_t i : chosen) parameters_[i].variable.value().mark_changed();
  }
}

const double* Optimizer::factors(std::size_t i) const {
  return factors_.data<double>() + static_cast<std::int64_t>(i) * factors_.dim(1);
}

bool Optimizer::has_gradient(std::size_t i) const {
  const Variable& v = parameters_[i].variable;
  return v.requires_grad() && v.grad().defined();
}

std::vector<Tensor> Optimizer::zeros_like_parameters() const {
  std::vector<Tensor> zeros;
  for (const NamedParameter& p : parameters_) {
    zeros.push_back(Tensor::zeros(p.variable.shape(), p.variable.dtype(), device()));
  }
  return zeros;
}

Sgd::Sgd(std::vector<NamedParameter> parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.weight_decay, options.no_decay, options.lr_factor,
                options.step_units, /*factors=*/1),
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

void Sgd::write_factors(std::size_t /*i*/, double lr, double* factors) { *factors = lr; }

void Sgd::update(DType dtype, std::span<const std::size_t> chosen) {
  const kernels::SgdStep step{options_.momentum, options_.nesterov};
  visit_floating(dtype, "sgd", [&](auto zero) {
    using T = decltype(zero);
    std::vector<kernels::SgdTensor<T>> tensors;
    for (const std::size_t i : chosen) {
      const Variable& v = parameters()[i].variable;
      tensors.push_back({.size = v.value().size(),
                         .lr = factors(i),
                         .grad = v.grad().data<T>(),
                         .momentum = momentum_.empty() ? nullptr : momentum_[i].data<T>(),
                         .param = v.value().data<T>(),
                         .weight_decay = weight_decay(i),
                         .units = data_or_null<T>(unit(i).size),
                         .most_units = unit(i).count});
    }
    run(device(), kernels::SgdUpdate<T>{.tensors = tensors, .step = step});
  });
}

AdamW::AdamW(std::vector<NamedParameter> parameters, AdamWOptions options)
    : Optimizer(std::move(parameters), options.weight_decay, options.no_decay, options.lr_factor,
                options.step_units, kernels::kAdamWFactors),
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

void AdamW::write_factors(std::size_t i, double lr, double* factors) {
  const std::int64_t count = ++*steps_[i].data<std::int64_t>();
  kernels::adamw_factors(rule_of(options_), lr, weight_decay(i), count, factors);
  factors[1] *= unit(i).count;
}

void AdamW::update(DType dtype, std::span<const std::size_t> chosen) {
  visit_floating(dtype, "adamw", [&](auto zero) {
    using T = decltype(zero);
    std::vector<kernels::AdamWTensor<T>> tensors;
    for (const std::size_t i : chosen) {
      const Variable& v = parameters()[i].variable;
      tensors.push_back({.size = v.value().size(),
                         .factors = factors(i),
                         .grad = v.grad().data<T>(),
                         .exp_avg = exp_avg_[i].data<T>(),
                         .exp_avg_sq = exp_avg_sq_[i].data<T>(),
                         .param = v.value().data<T>(),
                         .units = data_or_null<T>(unit(i).size)});
    }
    run(device(), kernels::AdamWUpdate<T>{.tensors = tensors, .step = rule_of(options_)});
  });
}

}  // namespace steelyard
