#include "steelyard/export/c/c_header.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "steelyard/export/c/c_text.h"
#include "steelyard/export/op_form.h"
#include "steelyard/export/output_map.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

constexpr std::size_t kMostDimensions = 3;  // of a sample's value

// This text is the same for every model.
constexpr std::string_view kTypes = R"(#ifndef STEELYARD_MODEL_H
#define STEELYARD_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* A tensor between nodes. Codes stand for (code - zero_point) * scale. */
typedef struct {
  const char *name;
  int32_t rank, shape[3]; /* of one sample; images are height, width, channels */
  int32_t is_codes;       /* 0: floats, and nothing below */
  float scale;
  int32_t zero_point, qmin, qmax;
} steelyard_value;

/* An operation; it stands after those whose outputs it reads. */
typedef struct {
  const char *op, *name;
  const int32_t *inputs; /* indices of values */
  int32_t input_count, output;
  int32_t activation; /* fused: 0 none, 1 relu, 2 relu6 */
  int32_t kernel[2], stride[2], padding[2], dilation[2], groups; /* of conv2d and pools */
  int32_t weight_shape[4];    /* linear: outputs, inputs, 1, 1; conv2d: O, C/groups, KH, KW */
  int32_t is_integer;         /* codes are multiplied as integers, else as floats */
  const int8_t *weight;       /* codes, one to a byte */
  const float *weight_scale;  /* one for each `weight_group` consecutive codes */
  const int8_t *weight_zero_point; /* one for each scale; NULL: all are 0 */
  int32_t weight_group;
  const float *float_weight;  /* of a layer left in float, instead */
  const int32_t *bias;        /* of scale (input's scale * weight_scale) */
  const float *float_bias;    /* where the product is in float or in groups, instead */
  double slope, offset;       /* hard_sigmoid: min(max(slope * x + offset, 0), 1); leaky_relu */
} steelyard_node;
)";

// Brackets around `size` numbers, of which the first come from the list and the others are 1.
template <typename Values>
std::string filled_up(const Values& values, std::size_t size) {
  std::vector<std::int32_t> numbers(values.begin(), values.end());
  numbers.resize(size, 1);
  return fmt::format("{{{}}}", c_list(std::span<const std::int32_t>(numbers)));
}

// A value that is one of several outputs.
struct NamedOutput {
  std::string name;
  std::size_t value;
};

// Empty where there is one.
std::vector<NamedOutput> outputs_of(const Graph& graph) {
  std::vector<NamedOutput> outputs;
  if (graph.nodes.empty() || graph.nodes.back().op != Op::kOutputParts) return outputs;
  for (const std::size_t value : graph.nodes.back().inputs) {
    const bool named = outputs.size() < graph.output_ports.size();
    outputs.push_back(
        {named ? graph.output_ports[outputs.size()].port.name : graph.values[value].name, value});
  }
  return outputs;
}

// The graph that the tables hold: the last map, and what joins several outputs, are said apart.
Graph without_last(Graph graph) {
  const std::vector<NamedOutput> outputs = outputs_of(graph);
  if (outputs.empty()) return without_output_map(std::move(graph));
  if (graph.output + 1 == graph.values.size()) graph.values.pop_back();
  graph.output = outputs.front().value;
  graph.nodes.pop_back();
  graph.output_ports.clear();
  return graph;
}

class HeaderWriter {
 public:
  // `map`: what follows the graph. `outputs`: those of several.
  HeaderWriter(const Graph& graph, const std::optional<OutputMap>& map,
               const std::vector<NamedOutput>& outputs)
      : graph_(graph), map_(map), outputs_(outputs) {}

  std::string text() {
    out_ = fmt::format(
        "/* The integer model of {}; model sha256 {}. Written by steelyard export. */\n",
        c_comment(graph_.name),
        graph_.model_sha256.empty() ? "unknown" : c_comment(graph_.model_sha256));
    out_ += kTypes;
    values();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) parameters(i);
    out_ += fmt::format("\n#define STEELYARD_NODES {}\n", graph_.nodes.size());
    out_ += "static const steelyard_node steelyard_nodes[STEELYARD_NODES] = {\n";
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) node(i);
    out_ += "};\n\n#endif\n";
    return std::move(out_);
  }

 private:
  template <typename T>
  void array(const char* type, const std::string& name, std::span<const T> values) {
    out_ += fmt::format("static const {} {}[{}] = {{\n  {}}};\n", type, name, values.size(),
                        c_list(values));
  }

  // What a program has to know and no table holds.
  void data(const char* what, const nlohmann::ordered_json& json) {
    out_ += fmt::format("/* {}: {} */\n", what, c_json(json));
  }

  void define(const char* name, std::size_t value) {
    out_ += fmt::format("#define {} {}\n", name, value);
  }

  void values() {
    const Normalization& normal = graph_.preprocessing.normalization;
    out_ +=
        "\n/* The input is (x - mean) / stddev of each channel, in double; bytes / 255 first. */\n";
    const Preprocessing& before = graph_.preprocessing;
    if (before.transforms)
      data("Before that, images are transformed", transforms_json(*before.transforms));
    if (before.table) data("The channels are features of a table", table_json(*before.table));
    if (!graph_.class_names.empty()) data("The classes or characters", graph_.class_names);
    define("STEELYARD_INPUT_IS_BYTES", graph_.preprocessing.dtype == DType::kU8 ? 1 : 0);
    define("STEELYARD_NORMALIZED_CHANNELS", normal.mean.size());
    if (!normal.mean.empty()) {
      array<float>("float", "steelyard_mean", normal.mean);
      array<float>("float", "steelyard_stddev", normal.stddev);
    }
    out_ += "\n";
    define("STEELYARD_CLASSIFIES", graph_.target == TargetKind::kClass ? 1 : 0);
    define("STEELYARD_INPUT", graph_.input);
    define("STEELYARD_OUTPUT", graph_.output);
    if (!outputs_.empty()) outputs();
    if (map_) {
      out_ +=
          "/* The result is output * scale + shift of each column of the output, in float. */\n";
    }
    define("STEELYARD_MAPPED_COLUMNS", map_ ? static_cast<std::size_t>(map_->scale.size()) : 0);
    if (map_) {
      array<float>("float", "steelyard_output_scale", map_->scale.span<float>());
      array<float>("float", "steelyard_output_shift", map_->shift.span<float>());
    }
    define("STEELYARD_VALUES", graph_.values.size());
    out_ += "static const steelyard_value steelyard_values[STEELYARD_VALUES] = {\n";
    for (const Value& value : graph_.values) {
      const Quantization q = value.quantization.value_or(Quantization{});
      out_ += fmt::format("  {{{}, {}, {}, {}, {}, {}, {}, {}}},\n", c_string(value.name),
                          value.shape.size(), filled_up(value.shape, kMostDimensions),
                          value.quantization ? 1 : 0, c_literal(q.scale), q.zero_point,
                          q.range.qmin, q.range.qmax);
    }
    out_ += "};\n\n";
  }

  void outputs() {
    out_ +=
        "/* Several outputs, in the order of the ONNX file, of which the one above is the first. "
        "*/\n"
        "typedef struct {\n  const char *name;\n  int32_t value; /* index of a value */\n"
        "} steelyard_output;\n";
    define("STEELYARD_OUTPUTS", outputs_.size());
    out_ += "static const steelyard_output steelyard_outputs[STEELYARD_OUTPUTS] = {\n";
    for (const NamedOutput& output : outputs_) {
      out_ += fmt::format("  {{{}, {}}},\n", c_string(output.name), output.value);
    }
    out_ += "};\n";
  }

  // The arrays of a node, named after its index.
  void parameters(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const std::vector<std::int32_t> inputs(node.inputs.begin(), node.inputs.end());
    array<std::int32_t>("int32_t", array_name("inputs", i), inputs);
    if (!node.weights) return;
    const Weights& w = *node.weights;
    if (home_of_weight(graph_, node) == i) weight(i, w);
    if (!w.bias.defined()) return;
    if (w.one_scale_per_channel()) {
      array<std::int32_t>("int32_t", array_name("bias", i), w.bias.span<std::int32_t>());
    } else {
      array<float>("float", array_name("bias", i), w.bias.span<float>());
    }
  }

  void weight(std::size_t i, const Weights& w) {
    if (!w.has_codes()) {
      return array<float>("float", array_name("weight", i), w.weight.span<float>());
    }
    array<std::int8_t>("int8_t", array_name("weight", i), w.weight.span<std::int8_t>());
    array<float>("float", array_name("scale", i), w.scales);
    if (!w.zero_points.empty()) {
      array<std::int8_t>("int8_t", array_name("zero_point", i), w.zero_points);
    }
  }

  static std::string array_name(const char* what, std::size_t i) {
    return fmt::format("steelyard_{}_{}", what, i);
  }

  static std::string if_there(bool there, const char* what, std::size_t i) {
    return there ? array_name(what, i) : "NULL";
  }

  void node(std::size_t i) {
    const Node& node = graph_.nodes[i];
    Shape shape;
    if (node.weights) shape = node.weights->weight.shape();
    using Pair = std::array<std::int64_t, 2>;
    const auto pair = [&](const char* name, const Pair& otherwise) {
      return filled_up(option_or(node.options, name, otherwise), 2);
    };
    const auto real = [&](const char* name) { return option_or(node.options, name, 0.0); };
    Pair kernel{1, 1};
    if (shape.size() == 4) kernel = {shape[2], shape[3]};
    const Weights w = node.weights.value_or(Weights{});
    const bool codes = node.weights && w.has_codes();
    const bool bias = node.weights && w.bias.defined();
    const std::size_t home = node.weights ? home_of_weight(graph_, node) : i;
    out_ += fmt::format(
        "  {{{}, {}, {}, {}, {}, {},\n   {}, {}, {}, {}, {},\n   {}, {}, {}, {}, {}, {}, {}, "
        "{}, {}, {:.16e}, {:.16e}}},\n",
        c_string(op_name(node.op)), c_string(node.name), array_name("inputs", i),
        node.inputs.size(), node.output, static_cast<int>(node.activation), pair("kernel", kernel),
        pair("stride", {1, 1}), pair("padding", {0, 0}), pair("dilation", {1, 1}),
        option_or<std::int64_t>(node.options, "groups", 1), filled_up(shape, 4),
        node.weights && w.integer() ? 1 : 0, if_there(codes, "weight", home),
        if_there(codes, "scale", home), if_there(!w.zero_points.empty(), "zero_point", home),
        w.group_size(), if_there(node.weights && !codes, "weight", home),
        if_there(bias && w.one_scale_per_channel(), "bias", i),
        if_there(bias && !w.one_scale_per_channel(), "bias", i), real("slope"), real("offset"));
  }

  const Graph& graph_;
  const std::optional<OutputMap>& map_;
  const std::vector<NamedOutput>& outputs_;
  std::string out_;
};

}  // namespace

std::string c_refusal(const Graph& whole) {
  const Graph graph = without_last(whole);
  for (const Node& node : graph.nodes) {
    const bool repeats = node.op == Op::kAdd && graph.values[node.inputs[0]].shape !=
                                                    graph.values[node.inputs.back()].shape;
    const bool other_axis = option_or<std::int64_t>(node.options, "axis", -1) != -1;
    if (!op_form(node.op).in_c_header || repeats || !node.constants.empty() || other_axis) {
      return "layer '" + printable(node.name) + "': the C header has no form of " +
             op_name(node.op) + (repeats ? " with broadcast inputs" : "");
    }
  }
  for (const Value& value : graph.values) {
    if (value.shape.size() > kMostDimensions) {
      return printable(value.name) + ": the C header has at most 3 dimensions, got " +
             shape_string(value.shape);
    }
    if (!value.quantization || !value.quantization->wide()) continue;
    return printable(value.name) + ": the C header has no codes of more than 8 bits";
  }
  return "";
}

std::string c_header(const Graph& graph) {
  validate(graph);
  if (const std::string why = c_refusal(graph); !why.empty()) throw std::invalid_argument(why);
  return HeaderWriter(without_last(graph), output_map(graph), outputs_of(graph)).text();
}

void write_c_header(const std::filesystem::path& path, const Graph& graph) {
  write_file_atomic(path, c_header(graph));
}

}  // namespace steelyard::deploy
