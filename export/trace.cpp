#include "steelyard/export/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "steelyard/export/op_form.h"
#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/quantizers/quantized_value.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {
namespace {

// As qat::deployed_scales(); nothing where they are undefined, being all 0.
std::vector<std::int8_t> deployed_zero_points(const Tensor& zero_points, std::int64_t outputs) {
  if (!zero_points.defined()) return {};
  const Tensor host = zero_points.to(Device{});
  std::vector<std::int8_t> values;
  for (const std::int32_t z : host.span<std::int32_t>()) {
    values.push_back(static_cast<std::int8_t>(z));
  }
  if (values.size() == 1) values.resize(static_cast<std::size_t>(outputs), values[0]);
  return values;
}

bool has_weight_codes(const TracedOperation& operation) {
  return operation.inputs.size() > 1 &&
         operation.inputs[1].companion<qat::WeightCompanion>() != nullptr;
}

Weights weights_of(const TracedOperation& operation) {
  if (const auto* product =
          dynamic_cast<const qat::IntegerProductFunction*>(operation.function.get())) {
    const std::int64_t outputs = product->weight_shape()[0];
    const auto& [scale, zero_point] = product->weight_qparams();
    const bool groups = scale.size() > outputs;
    const bool float_bias = groups && operation.inputs.size() > 2 && operation.inputs[2].defined();
    return {.product = ProductKind::kInteger,
            .weight = product->weight_codes().to(Device{}),
            .bits = product->weight_bits(),
            .scales = qat::deployed_scales(scale, outputs),
            .zero_points = deployed_zero_points(zero_point, outputs),
            .bias = float_bias ? operation.inputs[2].value().to(Device{}).clone()
                               : product->bias_codes().to(Device{})};
  }
  // The trace keeps a copy, because the model may be trained further.
  Weights weights;
  if (const auto companion = operation.inputs[1].companion<qat::WeightCompanion>()) {
    const qat::WeightCodes& codes = companion->codes;
    const std::int64_t outputs = codes.codes.dim(0);
    weights.weight = codes.codes.to(Device{});
    weights.bits = codes.bits;
    weights.scales = qat::deployed_scales(codes.qparams.scale, outputs);
    weights.zero_points = deployed_zero_points(codes.qparams.zero_point, outputs);
  } else {
    weights.weight = operation.inputs[1].value().to(Device{}).clone();
  }
  if (operation.inputs.size() > 2) weights.bias = operation.inputs[2].value().to(Device{}).clone();
  return weights;
}

// A batch norm after a linear map as part of its weights (kernels/norm_fold has the arithmetic).
void fold(Weights& weights, const Tensor& gamma, const Tensor& beta, const Tensor& mean,
          const Tensor& inv_std) {
  const std::int64_t channels = weights.weight.dim(0);
  const Tensor raw = real_weight(weights);
  std::vector<double> std_dev;
  for (const float inverse : inv_std.span<float>()) std_dev.push_back(1.0 / double{inverse});
  std::vector<double> centred(std_dev.size());
  weights.weight = Tensor::empty(raw.shape());
  weights.scales.clear();
  weights.zero_points.clear();
  kernels::run(kernels::FoldWeight<float>{
      .layout = {1, channels, raw.size() / std::max<std::int64_t>(1, channels)},
      .weight = raw.data<float>(),
      .gamma = gamma.data<float>(),
      .std_dev = std_dev.data(),
      .folded = weights.weight.data<float>()});
  const Tensor bias = Tensor::empty({channels});
  kernels::run(kernels::FoldBias<float, float>{
      .n = channels,
      .bias = weights.bias.defined() ? weights.bias.data<float>() : nullptr,
      .gamma = gamma.data<float>(),
      .beta = beta.data<float>(),
      .mean = mean.data<float>(),
      .std_dev = std_dev.data(),
      .centred = centred.data(),
      .folded = bias.data<float>()});
  weights.bias = bias;
}

std::optional<Quantization> quantization_of(const Variable& variable) {
  const auto value = qat::quantized(variable);
  if (!value) return std::nullopt;
  return Quantization{{value->host_scale(), value->host_zero_point()},
                      value->range,
                      value->codes.dtype(),
                      value->rounding};
}

class GraphBuilder {
 public:
  // `readers`: how many operations read each value, the reader of the output included.
  GraphBuilder(const std::string& name, std::unordered_map<const GradNode*, int> readers)
      : readers_(std::move(readers)) {
    trace_.graph.name = name;
  }

  std::size_t add_value(const Variable& variable, const std::string& name) {
    const Shape& shape = variable.shape();
    trace_.graph.values.push_back(
        {name, {shape.begin() + 1, shape.end()}, quantization_of(variable)});
    trace_.values.push_back(variable);
    index_.emplace(variable.node().get(), trace_.values.size() - 1);
    return trace_.values.size() - 1;
  }

  void add(const TracedOperation& operation) {
    Node node;
    std::vector<Constant> others;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const auto found = index_.find(operation.inputs[i].node().get());
      if (found != index_.end()) {
        node.inputs.push_back(found->second);
      } else {
        others.push_back({i, operation.inputs[i].value()});
      }
    }
    if (node.inputs.empty()) return;  // made of parameters alone: a folded or rounded weight
    if (fold_norm(operation)) return;
    if (operation.function->name() == "batch_norm") others = scale_and_shift(operation);
    const Function& function = *operation.function;
    const OpForm* known = find_recorded(function.name());
    if (known == nullptr) refuse(operation, "has no deployed form");
    if (known->refusal != nullptr) {
      const std::string why = known->refusal(function);
      if (!why.empty()) refuse(operation, why + " has no deployed form");
    }
    const OpInfo& info = op_info(known->op);
    node.op = known->op;
    node.options = info.options;
    node.name = unique_name(operation);
    if (known->read != nullptr) known->read(function, node);
    if (info.has_weights || (info.may_have_weights && has_weight_codes(operation))) {
      if (node.inputs.size() != 1 || !index_.contains(operation.inputs[0].node().get())) {
        refuse(operation, "with computed weights has no deployed form");
      }
      require_finite(operation);
      if (!node.weights) node.weights = weights_of(operation);
      if (known->weight != nullptr && !node.weights->has_codes()) {
        node.weights->weight = known->weight(node, node.weights->weight);
      }
      require_whole_bias(operation, *node.weights);
    } else if (!others.empty() && !info.takes_constants) {
      refuse(operation, "with a constant has no deployed form");
    } else if (!others.empty()) {
      for (Constant& other : others) {  // a copy, because the model may be trained further
        node.constants.push_back({other.place, other.value.to(Device{}).clone()});
      }
    }
    if (operation.output.shape().empty() ||
        operation.output.dim(0) != trace_.values.front().dim(0)) {
      refuse(operation, "of the batch has no deployed form");
    }
    node.output = add_value(operation.output, node.name);
    trace_.graph.nodes.push_back(std::move(node));
  }

  // A batch norm that follows a layer with float weights, and alone reads it, becomes part of its
  // weights; false where none does.
  bool fold_norm(const TracedOperation& operation) {
    std::vector<Node>& nodes = trace_.graph.nodes;
    if (operation.function->name() != "batch_norm" || nodes.empty()) return false;
    const auto found = index_.find(operation.inputs[0].node().get());
    Node& layer = nodes.back();
    if (found == index_.end() || found->second != layer.output || !layer.weights ||
        layer.weights->has_codes() || readers_.at(found->first) > 1) {
      return false;
    }
    // What the function keeps: x, gamma, mean, 1 / sqrt(variance + eps).
    const std::vector<Tensor>& kept = operation.function->saved();
    const auto host = [](const Tensor& tensor) { return tensor.to(Device{}); };
    fold(*layer.weights, host(kept[1]), host(operation.inputs[2].value()), host(kept[2]),
         host(kept[3]));
    const std::size_t value = layer.output;
    index_.erase(found);
    index_.emplace(operation.output.node().get(), value);
    trace_.values[value] = operation.output;
    return true;
  }

  // What a batch norm does to each channel, as the constants of its node.
  static std::vector<Constant> scale_and_shift(const TracedOperation& operation) {
    const std::vector<Tensor>& kept = operation.function->saved();
    const Tensor gamma = kept[1].to(Device{}), mean = kept[2].to(Device{}),
                 inv_std = kept[3].to(Device{});
    const Tensor beta = operation.inputs[2].value().to(Device{});
    const Tensor scale = Tensor::empty(gamma.shape()), shift = Tensor::empty(gamma.shape());
    for (std::int64_t c = 0; c < gamma.size(); ++c) {
      const double factor = double{gamma.data<float>()[c]} * double{inv_std.data<float>()[c]};
      scale.data<float>()[c] = static_cast<float>(factor);
      shift.data<float>()[c] = static_cast<float>(double{beta.data<float>()[c]} -
                                                  double{mean.data<float>()[c]} * factor);
    }
    return {{1, scale}, {2, shift}};
  }

  // The codes of NaN and infinities are ordinary codes and would hide them.
  static void require_finite(const TracedOperation& operation) {
    for (std::size_t i = 1; i < operation.inputs.size(); ++i) {
      const Variable& parameter = operation.inputs[i];
      if (!parameter.defined()) continue;
      const Tensor host = parameter.value().to(Device{});
      const auto values = host.span<float>();
      if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
        refuse(operation, "has a weight or bias that is not finite");
      }
    }
  }

  // Training cuts a bias that int32 cannot hold with the products
  // (qat/quantizers/weight_quantizer.h).
  static void require_whole_bias(const TracedOperation& operation, const Weights& weights) {
    if (!weights.one_scale_per_channel() || !weights.bias.defined()) return;
    const float input_scale = qat::quantized(operation.inputs[0])->host_scale();
    const Tensor bias = operation.inputs[2].value().to(Device{});
    for (std::int64_t o = 0; o < bias.size(); ++o) {
      const float scale = input_scale * weights.scales[static_cast<std::size_t>(o)];
      const float value = bias.data<float>()[o];
      if (kernels::quantize_bias(value, scale) == weights.bias.data<std::int32_t>()[o]) continue;
      throw WeightFault(
          fmt::format("export: {}: the bias {} of channel {} and its products can overflow int32",
                      operation.module, value, o));
    }
  }

  std::string unique_name(const TracedOperation& operation) {
    const std::string base =
        operation.module.empty() ? operation.function->name() : operation.module;
    std::string name = base;
    int& number = numbers_.try_emplace(base, 1).first->second;  // of the last with that base
    while (!names_.insert(name).second) name = base + "#" + std::to_string(++number);
    return name;
  }

  Trace finish(const Variable& output) {
    const auto found = index_.find(output.node().get());
    if (found == index_.end()) {
      throw InputError("export: the model's output does not depend on its input");
    }
    trace_.graph.output = found->second;
    try {
      validate(trace_.graph);
    } catch (const std::invalid_argument& error) {
      throw InputError(std::string("export: ") + error.what());
    }
    return std::move(trace_);
  }

 private:
  [[noreturn]] static void refuse(const TracedOperation& operation, const std::string& why) {
    const std::string where = operation.module.empty() ? "the model" : operation.module;
    throw InputError("export: " + where + ": the operation " + operation.function->name() + " " +
                     why);
  }

  Trace trace_;
  std::unordered_map<const GradNode*, std::size_t> index_;
  std::unordered_map<const GradNode*, int> readers_;
  std::set<std::string> names_{"input"};
  std::unordered_map<std::string, int> numbers_;
};

std::unordered_map<const GradNode*, int> readers_of(const std::vector<TracedOperation>& operations,
                                                    const Variable& output) {
  std::unordered_map<const GradNode*, int> readers{{output.node().get(), 1}};
  for (const TracedOperation& operation : operations) {
    for (const Variable& input : operation.inputs) {
      if (input.defined()) ++readers[input.node().get()];
    }
  }
  return readers;
}

bool same_constants(const Node& a, const Node& b) {
  if (a.op != b.op || a.weights.has_value() != b.weights.has_value()) return false;
  const auto same_value = [](const Constant& x, const Constant& y) {
    return same_elements(x.value, y.value);
  };
  if (!std::equal(a.constants.begin(), a.constants.end(), b.constants.begin(), b.constants.end(),
                  same_value)) {
    return false;
  }
  if (a.recurrent && !same_weights(*a.recurrent, *b.recurrent)) return false;
  return !a.weights || same_weights(*a.weights, *b.weights);
}

}  // namespace

Trace trace(Module& model, const Tensor& inputs, const std::string& name) {
  if (!inputs.defined()) {
    throw std::invalid_argument("[trace] expected inputs, got an undefined tensor");
  }
  const qat::FaultErrorsOff refused_here(model);  // weights and biases, by the operation's name
  const Variable input(inputs.to(device_of(model)), /*requires_grad=*/true);
  ForwardContext context;
  const TapeTrace tape;
  const Variable output = model.forward(input, context);
  GraphBuilder builder(name, readers_of(tape.operations(), output));
  builder.add_value(input, "input");
  for (const TracedOperation& operation : tape.operations()) builder.add(operation);
  return builder.finish(output);
}

void require_constants(const Graph& graph, Module& model, const Tensor& inputs) {
  Tensor others = inputs.to(Device{}).clone();
  for (float& x : others.span<float>()) x = x < 0.5F ? 1 : 0;
  const qat::FaultErrorsOff trial(model, qat::FaultErrorsOff::Counted::kDropped);
  Graph other;
  try {
    other = trace(model, others, graph.name).graph;
  } catch (const std::exception&) {
    return;  // the network does not take these samples
  }
  if (other.nodes.size() != graph.nodes.size()) {
    throw InputError(
        fmt::format("export: the number of the model's operations depends on the sample ({} for "
                    "one, {} for another), which has no deployed form",
                    graph.nodes.size(), other.nodes.size()));
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (same_constants(graph.nodes[i], other.nodes[i])) continue;
    throw InputError("export: " + graph.nodes[i].name + ": the operation " +
                     op_name(graph.nodes[i].op) +
                     " reads a value that is computed from the samples without being recorded, "
                     "which has no deployed form");
  }
}

}  // namespace steelyard::deploy
