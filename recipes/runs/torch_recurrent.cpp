#include "steelyard/recipes/runs/torch_recurrent.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/lstm.h"

namespace steelyard {
namespace {

// Of each gate here, its place in PyTorch's order: input, forget, cell, output and reset, update,
// new.
constexpr std::array<std::int64_t, 4> kLstmGates{0, 3, 1, 2};
constexpr std::array<std::int64_t, 3> kGruGates{1, 0, 2};

std::optional<Tensor> take(std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  if (found == tensors.end()) return std::nullopt;
  Tensor tensor = found->tensor;
  tensors.erase(found);
  return tensor;
}

Tensor in_order(const Tensor& rows, std::span<const std::int64_t> gates) {
  const auto count = static_cast<std::int64_t>(gates.size());
  if (rows.rank() == 0 || rows.dim(0) % count != 0) return rows;
  Tensor ordered = Tensor::empty(rows.shape(), rows.dtype());
  const auto bytes = static_cast<std::size_t>(rows.bytes() / count);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    std::memcpy(static_cast<char*>(ordered.raw()) + i * bytes,
                static_cast<const char*>(rows.raw()) + static_cast<std::size_t>(gates[i]) * bytes,
                bytes);
  }
  return ordered;
}

// Adds as many of the elements of `more` as the first argument says.
void add_first(std::int64_t count, Tensor& to, const Tensor& more) {
  for (std::int64_t i = 0; i < count; ++i) to.data<float>()[i] += more.data<float>()[i];
}

// PyTorch adds two biases; both are absent with bias=False.
void take_biases(std::vector<NamedTensor>& tensors, const std::string& prefix, std::int64_t rows,
                 bool is_gru, std::span<const std::int64_t> gates) {
  const std::int64_t units = rows / static_cast<std::int64_t>(gates.size());
  std::optional<Tensor> of_input = take(tensors, prefix + "bias_ih_l0");
  std::optional<Tensor> recurrent = take(tensors, prefix + "bias_hh_l0");
  if (!of_input && !recurrent) of_input = recurrent = Tensor::zeros({rows});
  for (const std::optional<Tensor>& bias : {of_input, recurrent}) {
    if (bias && bias->size() == rows) continue;
    tensors.push_back({prefix + "bias", bias ? *bias : Tensor::zeros({0})});
    return;
  }
  Tensor bias = in_order(of_input->to(DType::kF32), gates).clone();
  const Tensor more = in_order(recurrent->to(DType::kF32), gates);
  // A GRU's new state has its recurrent bias inside of the product with the reset gate.
  add_first(is_gru ? rows - units : rows, bias, more);
  tensors.push_back({prefix + "bias", std::move(bias)});
  if (!is_gru) return;
  Tensor inside = Tensor::zeros({units});
  std::copy_n(more.data<float>() + rows - units, units, inside.data<float>());
  tensors.push_back({prefix + "recurrent_bias", std::move(inside)});
}

}  // namespace

void from_torch_recurrent(std::vector<NamedTensor>& tensors, Module& model) {
  for (const NamedModule& entry : model.named_modules()) {
    const bool is_gru = dynamic_cast<const GRU*>(entry.module) != nullptr;
    if (!is_gru && dynamic_cast<const LSTM*>(entry.module) == nullptr) continue;
    const std::string prefix = entry.name.empty() ? "" : entry.name + ".";
    const auto gates = is_gru ? std::span<const std::int64_t>(kGruGates) : kLstmGates;
    const std::optional<Tensor> weight = take(tensors, prefix + "weight_ih_l0");
    if (!weight) continue;
    tensors.push_back({prefix + "weight", in_order(*weight, gates)});
    if (const auto recurrent = take(tensors, prefix + "weight_hh_l0")) {
      tensors.push_back({prefix + "recurrent_weight", in_order(*recurrent, gates)});
    }
    for (const NamedBuffer& buffer : entry.module->named_buffers(entry.name)) {
      tensors.push_back({buffer.name, buffer.tensor.clone()});
    }
    take_biases(tensors, prefix, weight->rank() > 0 ? weight->dim(0) : 0, is_gru, gates);
  }
}

}  // namespace steelyard
