#include "steelyard/import/translate.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/affine_maps.h"
#include "steelyard/import/free_sizes.h"
#include "steelyard/import/graph/tidy.h"
#include "steelyard/import/inputs.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {
namespace {

const std::vector<OperationRow>& operations() {
  static const std::vector<OperationRow> kRows = [] {
    std::vector<OperationRow> rows;
    for (const auto& family :
         {layer_operations(), elementwise_operations(), shape_operations(), border_operations(),
          join_operations(), window_operations(), lookup_operations(), choice_operations(),
          recurrent_operations(), reduction_operations(), function_operations(), norm_operations(),
          block_operations()}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    return rows;
  }();
  return kRows;
}

// Said once, and not of each of its nodes.
void require_float(const OnnxModel& model) {
  std::size_t count = 0;
  const OnnxNode* first = nullptr;
  for (const OnnxNode& node : model.nodes) {
    // ONNX's and ONNX Runtime's operations that make, take or multiply codes.
    const bool of_codes = node.op.ends_with("izeLinear") || node.op.ends_with("Integer") ||
                          node.op.starts_with("QLinear") || node.op == "QGemm";
    if (!of_codes) continue;
    if (count++ == 0) first = &node;
  }
  if (count == 0) return;
  fail(model, "the model has integers already (" + std::to_string(count) +
                  (count == 1 ? " node" : " nodes") + ", the first is " +
                  printable(first->label()) + ", a " + printable(first->op) +
                  "): import the float model that it was made of");
}

bool is_floating(const OnnxPort& port) {
  return port.type == "float" || port.type == "float16" || port.type == "double" ||
         port.type == "bfloat16";
}

// Ports of other floats than float32, which they are here.
std::vector<std::string> notes_of_types(const OnnxModel& model) {
  std::vector<std::string> notes;
  const auto note = [&](const char* what, const OnnxPort& port) {
    if (!is_floating(port) || port.type == "float") return;
    notes.push_back(std::string(what) + " '" + printable(port.name) + "' is " + port.type + " in " +
                    printable(model.source) + ", and float32 here and in exports");
  };
  for (const OnnxPort& port : model.inputs) note("the input", port);
  for (const OnnxPort& port : model.outputs) note("the output", port);
  return notes;
}

}  // namespace

const OperationRow* find_operation(const OnnxNode& node) {
  const auto& rows = operations();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OperationRow& row) {
    return row.op == node.op && row.domain == node.domain;
  });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<SupportedOperation> supported_operations() {
  std::vector<SupportedOperation> list;
  for (const OperationRow& row : operations()) {
    if (row.domain.empty()) list.push_back({row.op, row.note});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
  return list;
}

void choose_outputs(OnnxModel& model, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<OnnxPort> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(model.outputs.begin(), model.outputs.end(),
                                    [&](const OnnxPort& port) { return port.name == name; });
    const bool inner = std::any_of(model.nodes.begin(), model.nodes.end(), [&](const auto& node) {
      return std::find(node.outputs.begin(), node.outputs.end(), name) != node.outputs.end();
    });
    if (name.empty() || (found == model.outputs.end() && !inner)) {
      fail(model, "no output and no value inside is called '" + printable(name) +
                      "'; the outputs are " + printable(names_of(model.outputs)));
    }
    chosen.push_back(found != model.outputs.end() ? *found
                                                  : OnnxPort{.name = name, .type = "float"});
  }
  model.outputs = std::move(chosen);
}

namespace {

Imported translate_any_size(const OnnxModel& model, const SampleSpec& sample) {
  const SimplifiedModel simplified = simplify(model);
  const auto translated = [&](const SampleSpec& of, bool any_size) {
    return Translator(simplified, of, any_size).run();
  };
  if (!has_free_sizes(model)) {
    Imported imported = translated(sample, false);
    note_fixed_inputs(imported, model);
    return imported;
  }
  Imported free = translated(sample, true);
  find_free_sizes(free, model, [&](const Shape& shape) { return translated(shape, true); });
  if (!free.graph.input.free.empty()) return free;
  Imported fixed = translated(sample, false);
  fixed.notes = std::move(free.notes);
  return fixed;
}

}  // namespace

Imported translate(const OnnxModel& model, const SampleSpec& sample) {
  require_float(model);
  require_inputs(model);
  Imported imported = translate_any_size(model, sample);
  const std::string shared = shared_text(imported.graph);
  if (!shared.empty()) imported.notes.push_back(shared + ", each with one set of weights");
  for (std::string& note : notes_of_types(model)) imported.notes.push_back(std::move(note));
  return imported;
}

Reached reach(const OnnxModel& model, const SampleSpec& sample) {
  require_float(model);
  require_inputs(model);
  SimplifiedModel simplified = simplify(model);
  const std::vector<std::string> outputs = simplified.outputs;
  Reached reached = Translator(std::move(simplified), sample, /*any_size=*/false).reached();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (reached.values.contains(outputs[i])) reached.values.insert(model.outputs[i].name);
  }
  return reached;
}

Translator::Translator(SimplifiedModel model, const SampleSpec& sample, bool any_size)
    : model_(std::move(model)), any_size_(any_size) {
  names_ = {"input", "output_activation"};
  for (std::size_t i = 0; i < model_.model.nodes.size(); ++i) {
    for (const std::string& output : model_.model.nodes[i].outputs) {
      if (!output.empty()) makers_[output] = i;
    }
  }
  require_ports();
  declare_inputs(sample);
}

// What is wrong with them is listed with the nodes that stand in the way.
void Translator::require_ports() {
  for (const OnnxPort& input : model_.model.inputs) {
    if (is_floating(input) || is_whole(input)) continue;
    unsupported_.push_back(
        {input.name, "input", "expected floats, int32, int64 or bool, got " + input.type});
  }
  if (!model_.model.outputs.empty()) return;
  unsupported_.push_back({model_.model.source, "outputs", "expected at least one, got none"});
}

void Translator::declare_inputs(const SampleSpec& sample) {
  graph_.sample = sample.shape;
  const OnnxPort& first = model_.model.inputs[0];
  fixed_batch_ = first.dims[batch_axis(model_.model, first)].size;
  for (const PlacedInput& input : placed_inputs(model_.model, sample)) {
    ImportedValue value{.shape = {},
                        .node = "input",
                        .channels_last = input.form.channels_last,
                        .whole = input.port.whole()};
    for (const std::int64_t dim : input.form.shape) value.shape.push_back({dim});
    const auto batch = static_cast<std::size_t>(input.port.batch_axis);
    value.shape.insert(value.shape.begin() + input.port.batch_axis, Extent{1, true});
    if (batch != 0) value.order = order_from(batch, value.rank());
    if (input.is_part) {
      value.node = add_called(legal(input.port.name), "InputPart", {"input"},
                              {{"first", input.first}, {"shape", input.form.held}});
      graph_.parts.push_back({input.port, input.first, input.form.held});
    } else {
      graph_.input = input.port;
    }
    values_[input.port.name] = std::move(value);
  }
}

void Translator::translate_nodes() {
  for (const OnnxNode& node : model_.model.nodes) {
    node_ = &node;
    translate_node();
  }
}

Reached Translator::reached() {
  translate_nodes();
  Reached reached{{}, std::move(unsupported_)};
  for (const auto& [name, value] : values_) {
    const bool computed =
        !value.unknown && !value.known && !value.whole && !value.compared && value.node != "input";
    const bool batched = std::any_of(value.shape.begin(), value.shape.end(),
                                     [](const Extent& extent) { return extent.of_batch; });
    if (computed && batched) reached.values.insert(name);
  }
  return reached;
}

Imported Translator::run() {
  translate_nodes();
  if (!unsupported_.empty()) throw UnsupportedGraph(model_.model.source, std::move(unsupported_));
  finish_outputs();
  prune(graph_);
  tidy(graph_, weights_);
  make_code_grid(graph_, weights_);
  prune(graph_);
  split_head(graph_);
  share_weights(graph_, weights_);
  Imported result{std::move(graph_), {}};
  for (const NodeSpec& node : result.graph.nodes) {
    for (NamedTensor& tensor : weights_[node.name]) result.weights.push_back(std::move(tensor));
  }
  return result;
}

void Translator::translate_node() {
  const OnnxNode& node = *node_;
  const auto give_up = [&](const std::string& reason) {
    if (!reason.empty()) unsupported_.push_back({node.label(), node.op, reason});
    for (const std::string& output : node.outputs) {
      if (!output.empty()) values_[output] = {.shape = {}, .unknown = true};
    }
  };
  const OperationRow* row = find_operation(node);
  const bool reads_unknown =
      std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
        const auto found = values_.find(name);
        return found != values_.end() && found->second.unknown;
      });
  try {
    if (!reads_unknown && know(node)) return;
    if (reads_unknown && node.domain.empty() &&
        (node.op == "Shape" || node.op == "Size" || node.op == "ConstantOfShape")) {
      return give_up("");
    }
    if (row == nullptr) {
      return give_up(node.domain.empty() ? kNotSupported
                                         : "operations of the domain '" + printable(node.domain) +
                                               "' are not supported");
    }
    if (reads_unknown) return give_up("");
    const bool whole = reads_whole_numbers(node);
    if (whole && row->whole == WholeNumbers::kRefused) refuse("of whole numbers");
    require_rank(node);
    const std::optional<ApartNode> apart = with_batch_apart();
    if (apart) {
      node_ = &apart->node;
    } else {
      for (const std::string& input : node.inputs) join_batch(input);
    }
    row->translate(*this);
    if (apart && node.op != "Reshape" && node.op != "Gather") set_joined(apart->joined);
    if (!whole || row->whole != WholeNumbers::kMoved) return;
    for (const std::string& output : node.outputs) {
      if (const auto made = values_.find(output); made != values_.end()) made->second.whole = true;
    }
  } catch (const Unsupported& error) {
    give_up(error.what());
  }
}

void Translator::require_rank(const OnnxNode& node) {
  const std::int64_t least = node.integer(kLeastRank, 0);
  if (least == 0) return;
  const bool fits = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const auto& name) {
    const ImportedValue* value = this->value(name);
    return value != nullptr && std::ssize(value->shape) >= least;
  });
  if (fits) return;
  refuse("a number in it has " + std::to_string(least) + " dimensions, more than " +
         to_string(input(0).shape));
}

bool Translator::reads_whole_numbers(const OnnxNode& node) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
    const ImportedValue* value = this->value(name);
    return value != nullptr && value->whole;
  });
}

void Translator::finish_outputs() {
  const std::vector<OnnxPort>& ports = model_.model.outputs;
  node_ = nullptr;
  std::vector<std::string> nodes;
  std::vector<PartSpec> parts;
  std::int64_t values = 0;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    PartSpec part{{.name = ports[i].name}, values, {}};
    nodes.push_back(finish_output(ports[i], model_.outputs[i], part));
    values += shape_size(part.shape);
    parts.push_back(std::move(part));
  }
  if (parts.size() > 1) {
    add_called("outputs", kOutputParts, nodes, {});
    graph_.output_sample = {values};
    graph_.output_parts = std::move(parts);
    return;
  }
  graph_.output = std::move(parts[0].port);
  graph_.output_sample = std::move(parts[0].shape);
  // The output's maker goes last.
  const auto maker = std::find_if(graph_.nodes.begin(), graph_.nodes.end(),
                                  [&](const NodeSpec& node) { return node.name == nodes[0]; });
  NodeSpec last = std::move(*maker);
  graph_.nodes.erase(maker);
  graph_.nodes.push_back(std::move(last));
}

// Returns the node that gives the value of that name, and says its layout and shape in `part`.
std::string Translator::finish_output(const OnnxPort& port, const std::string& name,
                                      PartSpec& part) {
  const bool several = model_.model.outputs.size() > 1;
  const std::string what = "the output '" + printable(port.name) + "'";
  const std::string hint = several ? " (model.output names another one)" : "";
  const auto found = values_.find(name);
  if (const OnnxNode* made = maker(name); made != nullptr && found == values_.end()) {
    fail(model_.model, what + ": " + printable(made->label()) + " (" + printable(made->op) +
                           ") gives it, and this output of the operation is not supported" + hint);
  }
  if (found == values_.end() || found->second.known) {
    fail(model_.model, what + " is a constant" + hint);
  }
  ImportedValue& value = found->second;
  if (value.whole) fail(model_.model, what + " holds whole numbers" + hint);
  try {
    join_batch(name);
    const std::size_t batch = batch_dimension(value.shape);
    const bool image = batch == 0 && value.rank() == 4 && value.channels_last;
    const Order order =
        batch == 0 ? held_order(value.rank(), image) : order_from(batch, value.rank());
    std::string node = converted(name, order);
    if (node == "input") {
      fail(model_.model,
           what + " is the input" + (several ? hint : ": the graph has no operation"));
    }
    for (auto axis = order.begin() + 1; axis != order.end(); ++axis) {
      part.shape.push_back(fixed(value.shape[*axis]));
    }
    part.port.batch_axis = static_cast<std::int64_t>(batch);
    part.port.channels_last = value.rank() == 4 && !image;
    if (batch < port.dims.size() && !port.dims[batch].size && !port.dims[batch].name.empty()) {
      part.port.batch = port.dims[batch].name;
    }
    return node;
  } catch (const Unsupported& error) {
    fail(model_.model, what + ": " + error.what() + hint);
  }
}

}  // namespace steelyard::imports
