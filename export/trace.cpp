#include "steelyard/export/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "steelyard/framework/error.h"
#include "steelyard/framework/tape_trace.h"
#include "steelyard/qat/integer_product.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::deploy {
namespace {

// Recorded operations that have a deployed form, of codes and of floats.
const std::map<std::string_view, Op>& known_operations() {
  static const std::map<std::string_view, Op> kOperations{
      {"fake_quantize", Op::kQuantize},
      {"quantized_linear", Op::kLinear},
      {"linear", Op::kLinear},
      {"quantized_conv2d", Op::kConv2d},
      {"conv2d", Op::kConv2d},
      {"quantized_add", Op::kAdd},
      {"add", Op::kAdd},
      {"quantized_concat", Op::kConcat},
      {"concat", Op::kConcat},
      {"quantized_relu", Op::kRelu},
      {"relu", Op::kRelu},
      {"quantized_relu6", Op::kRelu6},
      {"relu6", Op::kRelu6},
      {"quantized_max_pool2d", Op::kMaxPool2d},
      {"max_pool2d", Op::kMaxPool2d},
      {"quantized_avg_pool2d", Op::kAvgPool2d},
      {"avg_pool2d", Op::kAvgPool2d},
      {"quantized_global_avg_pool", Op::kGlobalAvgPool},
      {"global_avg_pool", Op::kGlobalAvgPool},
      {"quantized_flatten", Op::kFlatten},
      {"flatten", Op::kFlatten}};
  return kOperations;
}

const std::string* find_attribute(const Attributes& attributes, std::string_view name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::int64_t integer(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "2,1" as {2, 1}.
std::array<std::int64_t, 2> pair_of(const Attributes& attributes, std::string_view name) {
  const std::string_view text = *find_attribute(attributes, name);
  const std::size_t comma = text.find(',');
  return {integer(text.substr(0, comma)), integer(text.substr(comma + 1))};
}

void read_geometry(const Attributes& attributes, Node& node) {
  if (node.op == Op::kConv2d) {
    node.conv = {pair_of(attributes, "stride"), pair_of(attributes, "padding"),
                 pair_of(attributes, "dilation"), integer(*find_attribute(attributes, "groups"))};
  }
  if (node.op == Op::kMaxPool2d || node.op == Op::kAvgPool2d) {
    node.pool = {pair_of(attributes, "kernel"), pair_of(attributes, "stride"),
                 pair_of(attributes, "padding")};
  }
  if (const std::string* activation = find_attribute(attributes, "activation")) {
    node.activation =
        *activation == "relu6" ? kernels::Activation::kRelu6 : kernels::Activation::kRelu;
  }
}

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

Weights weights_of(const TracedOperation& operation) {
  if (const auto* product =
          dynamic_cast<const qat::IntegerProductFunction*>(operation.function.get())) {
    return {
        .product = Product::kInteger,
        .weight = product->weight_codes().to(Device{}),
        .bits = product->weight_bits(),
        .scales = qat::deployed_scales(product->weight_scales(), product->weight_codes().dim(0)),
        .zero_points =
            deployed_zero_points(product->weight_zero_points(), product->weight_codes().dim(0)),
        .bias = product->bias_codes().to(Device{})};
  }
  // The trace may outlive further training: it keeps its own copy.
  Weights weights;
  if (const auto companion = operation.inputs[1].companion<qat::WeightCompanion>()) {
    weights.weight = companion->codes.codes.to(Device{});
    weights.bits = companion->codes.bits;
    weights.scales = qat::deployed_scales(companion->codes.scales, weights.weight.dim(0));
    weights.zero_points = deployed_zero_points(companion->codes.zero_points, weights.weight.dim(0));
  } else {
    weights.weight = operation.inputs[1].value().to(Device{}).clone();
  }
  if (operation.inputs.size() > 2) weights.bias = operation.inputs[2].value().to(Device{}).clone();
  return weights;
}

// (w x + b - mean) * inv_std * gamma + beta as one linear map, computed in double.
void fold(Weights& weights, const Tensor& gamma, const Tensor& beta, const Tensor& mean,
          const Tensor& inv_std) {
  const std::int64_t channels = weights.weight.dim(0);
  const std::int64_t terms = weights.weight.size() / channels;
  weights.weight = real_weight(weights);
  weights.scales.clear();
  weights.zero_points.clear();
  Tensor bias = Tensor::empty({channels});
  for (std::int64_t o = 0; o < channels; ++o) {
    const double factor = double{gamma.data<float>()[o]} * inv_std.data<float>()[o];
    const double before = weights.bias.defined() ? weights.bias.data<float>()[o] : 0.0F;
    bias.data<float>()[o] =
        static_cast<float>((before - mean.data<float>()[o]) * factor + beta.data<float>()[o]);
    float* row = weights.weight.data<float>() + o * terms;
    for (std::int64_t k = 0; k < terms; ++k) row[k] = static_cast<float>(row[k] * factor);
  }
  weights.bias = bias;
}

std::optional<Quantization> quantization_of(const Variable& variable) {
  const auto value = qat::quantized(variable);
  if (!value) return std::nullopt;
  return Quantization{value->host_scale(), value->host_zero_point(), value->range,
                      value->codes.dtype()};
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name) { trace_.graph.name = name; }

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
    for (const Variable& input : operation.inputs) {
      const auto found = index_.find(input.node().get());
      if (found != index_.end()) node.inputs.push_back(found->second);
    }
    if (node.inputs.empty()) return;  // made of parameters alone: a folded or rounded weight
    if (fold_norm(operation)) return;
    const auto known = known_operations().find(operation.function->name());
    if (known == known_operations().end()) refuse(operation, "has no deployed form");
    const Attributes attributes = operation.function->attributes();
    const std::string* counts_padding = find_attribute(attributes, "count_include_pad");
    if (counts_padding != nullptr && *counts_padding == "false") {
      refuse(operation, "with windows of unequal counts has no deployed form");
    }
    node.op = known->second;
    node.name = unique_name(operation);
    read_geometry(attributes, node);
    if (node.op == Op::kLinear || node.op == Op::kConv2d) {
      if (node.inputs.size() != 1 || !index_.contains(operation.inputs[0].node().get())) {
        refuse(operation, "with computed weights has no deployed form");
      }
      require_finite(operation);
      node.weights = weights_of(operation);
      require_whole_bias(operation, *node.weights);
    } else if (node.inputs.size() != operation.inputs.size()) {
      refuse(operation, "with a constant has no deployed form");
    }
    node.output = add_value(operation.output, node.name);
    trace_.graph.nodes.push_back(std::move(node));
  }

  // A batch norm that follows a float layer becomes part of its weights; false where none does.
  bool fold_norm(const TracedOperation& operation) {
    std::vector<Node>& nodes = trace_.graph.nodes;
    if (operation.function->name() != "batch_norm" || nodes.empty()) return false;
    const auto found = index_.find(operation.inputs[0].node().get());
    Node& layer = nodes.back();
    if (found == index_.end() || found->second != layer.output || !layer.weights ||
        layer.weights->integer()) {
      return false;
    }
    // What the function keeps: x, gamma, mean, 1 / sqrt(variance + eps).
    const std::vector<Tensor>& kept = operation.function->saved();
    const auto host = [](const Tensor& tensor) { return tensor.to(Device{}); };
    fold(*layer.weights, host(kept[1]), host(operation.inputs[2].value()), host(kept[2]),
         host(kept[3]));
    const std::size_t value = layer.output;
    index_.erase(found);  // who still reads it reads what is no longer computed
    index_.emplace(operation.output.node().get(), value);
    trace_.values[value] = operation.output;
    return true;
  }

  // The codes of NaN and infinities would hide them.
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

  // Training cuts a bias that int32 cannot hold beside the products (qat/fake_quantize.h).
  static void require_whole_bias(const TracedOperation& operation, const Weights& weights) {
    if (!weights.integer() || !weights.bias.defined()) return;
    const float input_scale = qat::quantized(operation.inputs[0])->host_scale();
    const Tensor bias = operation.inputs[2].value().to(Device{});
    for (std::int64_t o = 0; o < bias.size(); ++o) {
      const float scale = input_scale * weights.scales[static_cast<std::size_t>(o)];
      const float value = bias.data<float>()[o];
      if (kernels::quantize_bias(value, scale) == weights.bias.data<std::int32_t>()[o]) continue;
      throw std::invalid_argument(
          fmt::format("export: {}: the bias {} of channel {} and its products can overflow int32",
                      operation.module, value, o));
    }
  }

  std::string unique_name(const TracedOperation& operation) {
    const std::string base =
        operation.module.empty() ? operation.function->name() : operation.module;
    std::string name = base;
    for (int i = 2; !names_.insert(name).second; ++i) name = base + "#" + std::to_string(i);
    return name;
  }

  Trace finish(const Variable& output) {
    const auto found = index_.find(output.node().get());
    if (found == index_.end()) {
      throw InputError("export: the model's output does not depend on its input");
    }
    trace_.graph.output = found->second;
    validate(trace_.graph);
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
  std::set<std::string> names_{"input"};
};

}  // namespace

Trace trace(Module& model, const Tensor& inputs, const std::string& name) {
  const Variable input(inputs.to(device_of(model)), /*requires_grad=*/true);
  ForwardContext context;
  GraphBuilder builder(name);
  builder.add_value(input, "input");
  const TapeTrace tape;
  const Variable output = model.forward(input, context);
  for (const TracedOperation& operation : tape.operations()) builder.add(operation);
  return builder.finish(output);
}

}  // namespace steelyard::deploy
