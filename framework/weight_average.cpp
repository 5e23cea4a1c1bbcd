#include "framework/weight_average.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "kernels/elementwise.h"

namespace steelyard {
namespace {

void swap_elements(const Tensor& a, const Tensor& b) {
  auto* first = static_cast<std::byte*>(a.raw());
  std::swap_ranges(first, first + a.bytes(), static_cast<std::byte*>(b.raw()));
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
  for (const NamedParameter& p : model.named_parameters()) {
    add(p.name, p.variable.value(), p.variable, true);
  }
  for (const NamedBuffer& b : model.named_buffers()) {
    add(b.name, b.tensor, Variable(), options_.averages_buffer && options_.averages_buffer(b.name));
  }
  updates_ = Tensor::zeros({static_cast<std::int64_t>(entries_.size())}, DType::kI64);
}

void WeightAverage::update() {
  std::int64_t* updates = updates_.data<std::int64_t>();
  std::vector<std::string> set;
  if (options_.take_set_parameters) set = options_.take_set_parameters();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.averaged) continue;
    if (std::find(set.begin(), set.end(), entry.name) != set.end()) updates[i] = 0;
    const Variable& parameter = entry.parameter;
    if (updates[i] == 0 && parameter.defined() && !parameter.grad().defined()) continue;
    const auto n = static_cast<double>(updates[i]);
    const double decay = updates[i] == 0 ? 0 : std::min(options_.decay, (1 + n) / (10 + n));
    visit_floating(entry.in_model.dtype(), "weight_average", [&](auto zero) {
      using T = decltype(zero);
      kernels::move_average<T>(entry.in_model.size(), 1 - decay, entry.in_model.data<T>(),
                               entry.aside.data<T>());
    });
    ++updates[i];
  }
  stale_ = true;
}

void WeightAverage::enter() {
  const std::int64_t* updates = updates_.data<std::int64_t>();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (stale_ && updates[i] == 0) entry.aside.copy_from(entry.in_model);
    swap_elements(entry.in_model, entry.aside);
  }
  if (stale_ && options_.refresh) options_.refresh();
  stale_ = false;
}

void WeightAverage::leave() {
  for (const Entry& entry : entries_) swap_elements(entry.in_model, entry.aside);
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
