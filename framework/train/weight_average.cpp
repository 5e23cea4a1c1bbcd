#include "steelyard/framework/train/weight_average.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/optimizer_step/optimizer_step.h"

namespace steelyard {
namespace {

void swap_elements(const Tensor& a, const Tensor& b) {
  a.mark_changed();
  b.mark_changed();
  const auto swap = [&]<typename T>(T) {
    run(a.device(), kernels::Swap<T>{.n = a.bytes() / static_cast<std::int64_t>(sizeof(T)),
                                     .a = static_cast<T*>(a.raw()),
                                     .b = static_cast<T*>(b.raw())});
  };
  if (a.dtype() == DType::kF32) return swap(float{});
  if (a.dtype() == DType::kF64) return swap(double{});
  swap(std::uint8_t{});  // byte by byte
}

}  // namespace

WeightAverage::WeightAverage(Module& model, WeightAverageOptions options)
    : options_(std::move(options)) {
  if (!(options_.decay >= 0.0 && options_.decay < 1.0)) {
    throw std::invalid_argument("[weight_average] expected a decay in [0, 1), got " +
                                std::to_string(options_.decay));
  }
  const auto add = [&](const std::string& name, const Tensor& tensor, const Variable& parameter,
                       bool averaged) {
    entries_.push_back({name, tensor, tensor.clone(), parameter, averaged});
  };
  for (const NamedParameter& p : distinct(model.named_parameters())) {
    add(p.name, p.variable.value(), p.variable, true);
  }
  std::set<const void*> known;
  for (const NamedBuffer& b : model.named_buffers()) {
    if (b.tensor.size() > 0 && !known.insert(b.tensor.raw()).second) continue;
    add(b.name, b.tensor, Variable(), options_.averages_buffer && options_.averages_buffer(b.name));
  }
  const Shape one_each{static_cast<std::int64_t>(entries_.size())};
  updates_ = Tensor::zeros(one_each, DType::kI64);
  host_weights_ = Tensor::zeros(one_each, DType::kF64);
  weights_ = host_weights_.clone().to(device_of(model));
}

void WeightAverage::update() {
  std::int64_t* updates = updates_.data<std::int64_t>();
  double* weights = host_weights_.data<double>();
  std::vector<std::string> set;
  if (options_.take_set_parameters) set = options_.take_set_parameters();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.averaged) continue;
    if (std::find(set.begin(), set.end(), entry.name) != set.end()) updates[i] = 0;
    const Variable& parameter = entry.parameter;
    if (updates[i] == 0 && parameter.defined() && !parameter.grad().defined()) continue;
    const auto n = static_cast<double>(updates[i]);
    weights[i] = updates[i] == 0 ? 1 : 1 - std::min(options_.decay, (1 + n) / (10 + n));
    ++updates[i];
    chosen.push_back(i);
  }
  weights_.copy_from(host_weights_);
  for (const DType dtype : {DType::kF32, DType::kF64}) move_averages(dtype, chosen);
  stale_ = true;
}

void WeightAverage::move_averages(DType dtype, const std::vector<std::size_t>& chosen) {
  visit_floating(dtype, "weight_average", [&](auto zero) {
    using T = decltype(zero);
    std::vector<kernels::AverageTensor<T>> tensors;
    for (const std::size_t i : chosen) {
      const Entry& entry = entries_[i];
      if (entry.in_model.dtype() != dtype) continue;
      tensors.push_back({.size = entry.in_model.size(),
                         .weight = weights_.data<double>() + i,
                         .x = entry.in_model.data<T>(),
                         .average = entry.aside.data<T>()});
    }
    run(weights_.device(), kernels::MoveAverages<T>{.tensors = tensors});
  });
}

void WeightAverage::enter() {
  if (entered_) {
    throw std::logic_error(
        "[weight_average] expected the trained model, got the averaged one: enter() twice "
        "without leave()");
  }
  const std::int64_t* updates = updates_.data<std::int64_t>();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (stale_ && updates[i] == 0) entry.aside.copy_from(entry.in_model);
    swap_elements(entry.in_model, entry.aside);
  }
  entered_ = true;
  if (stale_ && options_.refresh) options_.refresh();
  stale_ = false;
}

void WeightAverage::leave() {
  if (!entered_) {
    throw std::logic_error(
        "[weight_average] expected the averaged model, got the trained one: leave() without "
        "enter()");
  }
  for (const Entry& entry : entries_) swap_elements(entry.in_model, entry.aside);
  entered_ = false;
}

std::vector<NamedTensor> WeightAverage::averaged() {
  if (stale_) {
    enter();
    leave();
  }
  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries_) tensors.push_back({entry.name, entry.aside});
  return tensors;
}

std::vector<NamedBuffer> WeightAverage::named_state() const {
  std::vector<NamedBuffer> state;
  for (const Entry& entry : entries_) state.push_back({entry.name + "/trained", entry.in_model});
  state.push_back({"average/updates", updates_});
  return state;
}

void WeightAverage::restore_averaged() {
  for (const Entry& entry : entries_) entry.aside.copy_from(entry.in_model);
  stale_ = false;
}

}  // namespace steelyard
