#include "steelyard/import/translate.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "steelyard/framework/error.h"
#include "steelyard/framework/printable.h"
#include "steelyard/import/affine_maps.h"
#include "steelyard/import/fold.h"
#include "steelyard/import/tidy.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {
namespace {

const std::vector<OperationRow>& operations() {
  static const std::vector<OperationRow> kRows = [] {
    std::vector<OperationRow> rows;
    for (const auto& family : {layer_operations(), elementwise_operations(), shape_operations(),
                               window_operations(), lookup_operations(), reduction_operations()}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    return rows;
  }();
  return kRows;
}

const OperationRow* find_operation(const OnnxNode& node) {
  const auto& rows = operations();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OperationRow& row) {
    return row.op == node.op && row.domain == node.domain;
  });
  return found == rows.end() ? nullptr : &*found;
}

[[noreturn]] void fail(const OnnxModel& model, const std::string& why) {
  throw InputError(printable(model.source) + ": " + why);
}

const OnnxPort& only_input(const OnnxModel& model) {
  if (model.inputs.size() != 1) {
    std::string names;
    for (const OnnxPort& port : model.inputs) names += (names.empty() ? "" : ", ") + port.name;
    fail(model, "expected one input, got " + std::to_string(model.inputs.size()) + ": " +
                    printable(names));
  }
  const OnnxPort& port = model.inputs[0];
  const std::string name = "the input '" + printable(port.name) + "'";
  if (port.dims.empty()) fail(model, name + " has no shape with a batch");
  return port;
}

bool matches(const std::vector<OnnxDim>& dims, const Shape& shape) {
  if (dims.size() != shape.size() + 1) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (dims[i + 1].size && *dims[i + 1].size != shape[i]) return false;
  }
  return true;
}

// [H, W, C] as [C, H, W].
Shape channels_first(const Shape& sample) {
  Shape shape = sample;
  std::rotate(shape.begin(), shape.end() - 1, shape.end());
  return shape;
}

ExtentShape with_batch(const Shape& sample) {
  ExtentShape shape{{1, true}};
  for (const std::int64_t dim : sample) shape.push_back({dim});
  return shape;
}

// A name of letters, digits and '_'.
std::string legal(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (kept) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  constexpr std::size_t kLongest = 200;
  return name.substr(0, kLongest);
}

// What a layer's weight is called without the word for weight; "" where it has none.
std::string stem_of(std::string name) {
  while (name.ends_with('#')) name.pop_back();
  for (const char* end :
       {".weight", "_weights", "_weight", ".weights", "/weight", ".w_0", ".kernel", "/kernel",
        "_kernel", ".scale", "_scale", ".gamma", "/gamma"}) {
    if (name.ends_with(end) && name.size() > std::string_view(end).size()) {
      return name.substr(0, name.size() - std::string_view(end).size());
    }
  }
  return "";
}

}  // namespace

Shape sample_of(const OnnxModel& model) {
  const OnnxPort& port = only_input(model);
  Shape sample;
  for (std::size_t i = 1; i < port.dims.size(); ++i) {
    if (!port.dims[i].size) {
      fail(model, "the input '" + printable(port.name) + "' " + to_string(port.dims) +
                      " has free sizes: say the shape of a sample (--sample 48,192,3)");
    }
    sample.push_back(*port.dims[i].size);
  }
  // [C, H, W] unless only the other order looks like an image's.
  if (sample.size() == 3 && !(sample[2] <= 4 && sample[0] > 4)) {
    std::rotate(sample.begin(), sample.begin() + 1, sample.end());
  }
  return sample;
}

std::vector<SupportedOperation> supported_operations() {
  std::vector<SupportedOperation> list;
  for (const OperationRow& row : operations()) {
    if (row.domain.empty()) list.push_back({row.op, row.note});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
  return list;
}

void choose_output(OnnxModel& model, const std::string& name) {
  if (name.empty()) return;  // translate() says what it expects
  std::string names;
  for (OnnxPort& port : model.outputs) {
    if (port.name == name) {
      model.outputs = {OnnxPort(port)};
      return;
    }
    names += (names.empty() ? "" : ", ") + port.name;
  }
  fail(model, "no output is called '" + printable(name) + "'; there are " + printable(names));
}

Imported translate(const OnnxModel& model, const Shape& sample) {
  only_input(model);
  return Translator(simplify(model), sample).run();
}

Translator::Translator(SimplifiedModel model, const Shape& sample) : model_(std::move(model)) {
  names_ = {"input", "output_activation"};
  for (std::size_t i = 0; i < model_.model.nodes.size(); ++i) {
    for (const std::string& output : model_.model.nodes[i].outputs) makers_[output] = i;
  }
  require_ports();
  const OnnxPort& port = only_input(model_.model);
  fixed_batch_ = port.dims[0].size;
  if (!port.dims[0].size && !port.dims[0].name.empty()) graph_.input.batch = port.dims[0].name;
  graph_.input.name = port.name;
  graph_.sample = sample;
  values_[port.name] = input_value(sample);
}

// What is wrong with them is listed beside the nodes that stand in the way.
void Translator::require_ports() {
  const OnnxPort& input = only_input(model_.model);
  if (input.type == "int32" || input.type == "int64") {
    graph_.input.type = input.type;
  } else if (input.type != "float") {
    unsupported_.push_back(
        {input.name, "input", "expected float, int32 or int64, got " + input.type});
  }
  const std::vector<OnnxPort>& outputs = model_.model.outputs;
  if (outputs.size() == 1) return;
  std::string names;
  for (const OnnxPort& port : outputs) names += (names.empty() ? "" : ", ") + port.name;
  unsupported_.push_back(
      {names, "outputs",
       "expected one, got " + std::to_string(outputs.size()) + ": model.output names it"});
}

Value Translator::input_value(const Shape& sample) {
  const OnnxPort& port = only_input(model_.model);
  if (sample.size() == 3 && matches(port.dims, channels_first(sample))) {
    return {.shape = with_batch(channels_first(sample)),
            .node = "input",
            .channels_last = true,
            .whole = graph_.input.whole()};
  }
  if (!matches(port.dims, sample)) {
    const std::string as = sample.size() == 3 ? " (image [height, width, channels])" : "";
    fail(model_.model, "the input '" + printable(port.name) + "' is " + to_string(port.dims) +
                           ", the data has samples of " + shape_string(sample) + as);
  }
  graph_.input.channels_last = sample.size() == 3;
  return {.shape = with_batch(sample), .node = "input", .whole = graph_.input.whole()};
}

Imported Translator::run() {
  for (const OnnxNode& node : model_.model.nodes) {
    node_ = &node;
    translate_node();
  }
  if (!unsupported_.empty()) throw UnsupportedGraph(model_.model.source, std::move(unsupported_));
  finish_output();
  prune(graph_);
  tidy(graph_, weights_);
  make_affine(graph_, weights_);
  prune(graph_);
  split_head(graph_);
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
    for (const std::string& output : node.outputs) values_[output] = {.shape = {}, .unknown = true};
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
        (node.op == "Shape" || node.op == "ConstantOfShape")) {
      return give_up("");
    }
    if (row == nullptr) {
      return give_up(node.domain.empty() ? "the operation is not supported"
                                         : "operations of the domain '" + printable(node.domain) +
                                               "' are not supported");
    }
    if (reads_unknown) return give_up("");
    const bool whole = reads_whole_numbers(node);
    if (whole && row->whole == WholeNumbers::kRefused) refuse("of whole numbers");
    row->translate(*this);
    if (!whole || row->whole != WholeNumbers::kMoved) return;
    for (const std::string& output : node.outputs) {
      if (const auto made = values_.find(output); made != values_.end()) made->second.whole = true;
    }
  } catch (const Unsupported& error) {
    give_up(error.what());
  }
}

bool Translator::reads_whole_numbers(const OnnxNode& node) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
    const Value* value = this->value(name);
    return value != nullptr && value->whole;
  });
}

const OnnxNode* Translator::maker(const std::string& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() ? nullptr : &model_.model.nodes[found->second];
}

const Value* Translator::value(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.known ? nullptr : &found->second;
}

const Constant* Translator::constant_called(const std::string& name) {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second.known ? &*found->second.known : nullptr;
  const auto initializer = model_.model.initializers.find(name);
  return initializer == model_.model.initializers.end() ? nullptr : &initializer->second;
}

// Shapes are known, and what follows from known values alone.
bool Translator::know(const OnnxNode& node) {
  if (!node.domain.empty()) return false;
  if (node.op == "Shape" && !input(0).known) {
    if (node.has("start") || node.has("end")) refuse("start and end are not supported");
    const ExtentShape& shape = input(0).shape;
    give({.shape = {}, .known = Constant{.shape = {std::ssize(shape)}, .integers = shape}});
    return true;
  }
  std::vector<const Constant*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!has_input(i)) {
      inputs.push_back(nullptr);
      continue;
    }
    if (!input(i).known) return false;
    inputs.push_back(&*input(i).known);
  }
  auto outputs = fold(node, inputs);
  if (!outputs) {
    if (inputs.empty()) return false;
    refuse("all of its inputs are constants");
  }
  for (std::size_t i = 0; i < node.outputs.size() && i < outputs->size(); ++i) {
    give({.shape = {}, .known = std::move((*outputs)[i])}, i);
  }
  return true;
}

const Value& Translator::input(std::size_t i) {
  const std::string name = node_->input(i);
  if (name.empty()) refuse("input " + std::to_string(i + 1) + " is missing");
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  // An initializer, copied when it is asked for.
  const auto initializer = model_.model.initializers.find(name);
  if (initializer == model_.model.initializers.end()) {
    refuse("it reads '" + printable(name) + "', an output that is not supported");
  }
  return values_.emplace(name, Value{.shape = {}, .known = initializer->second}).first->second;
}

const Constant& Translator::constant(std::size_t i, const char* what) {
  const Value& value = input(i);
  if (!value.known) refuse(std::string("its ") + what + " is computed, expected a constant");
  return *value.known;
}

const Constant* Translator::optional_constant(std::size_t i, const char* what) {
  return has_input(i) ? &constant(i, what) : nullptr;
}

std::vector<std::int64_t> Translator::attribute_or_input(const std::string& name, std::size_t i) {
  if (node_->has(name)) return node_->integers(name);
  const Constant* given = optional_constant(i, name.c_str());
  return given == nullptr ? std::vector<std::int64_t>{} : integers_of(*given, name);
}

std::string Translator::held(std::size_t i, bool channels_last) {
  input(i);
  return converted(node_->input(i), channels_last);
}

const std::string& Translator::converted(const std::string& name, bool channels_last) {
  Value& value = values_.at(name);
  if (value.known) refuse("'" + printable(name) + "' is a constant, expected a computed value");
  if (value.one_hot != 0) refuse("of one-hot values, which only a table may follow");
  if (value.rank() < 3) {
    if (channels_last) refuse("expected images, got " + to_string(value.shape));
    return value.node;
  }
  if (value.node.empty()) {  // a global average: a pool with one window
    const Value& source = values_.at(value.averaged);
    const std::vector<std::int64_t> window{fixed(source.shape[2]), fixed(source.shape[3])};
    value.node = add_called(legal(value.label), "AvgPool2d", {converted(value.averaged, true)},
                            {{"kernel", window},
                             {"stride", std::vector<std::int64_t>{1, 1}},
                             {"padding", std::vector<std::int64_t>{0, 0}},
                             {"count_include_pad", true}});
  }
  if (value.channels_last == channels_last) return value.node;
  auto [found, added] = converted_.try_emplace({name, channels_last});
  if (!added) return found->second;
  const auto from = held_order(value.rank(), value.channels_last);
  const auto to = held_order(value.rank(), channels_last);
  ExtentShape shape;
  std::vector<std::int64_t> order;
  for (const std::size_t axis : to) {
    shape.push_back(value.shape[axis]);
    order.push_back(std::find(from.begin(), from.end(), axis) - from.begin());
  }
  Extent pixels{1};
  for (std::size_t i = 2; i < value.rank(); ++i) pixels.value *= value.shape[i].value;
  const bool keeps_order = value.shape[1] == Extent{1} ||
                           elements({value.shape.begin() + 2, value.shape.end()}) == Extent{1};
  const std::string as = value.node + (channels_last ? "_channels_last" : "_channels_first");
  found->second = keeps_order
                      ? add_called(as, "Reshape", {value.node}, {{"shape", open_sizes(shape)}})
                      : add_called(as, "Permute", {value.node}, {{"order", order}});
  return found->second;
}

std::string Translator::classes(std::size_t i) {
  input(i);
  return values_.at(node_->input(i)).node;
}

std::string Translator::averaged_row(std::size_t i) {
  Value& value = values_.at(node_->input(i));
  if (value.averaged.empty() || !value.node.empty()) return "";
  auto [found, added] = converted_.try_emplace({node_->input(i) + " row", true});
  if (added) {
    found->second =
        add_called(legal(value.label), "GlobalAvgPool", {converted(value.averaged, true)}, {});
  }
  return found->second;
}

std::string Translator::unique(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !names_.insert(name).second; ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

std::string Translator::add(const std::string& type, std::vector<std::string> inputs,
                            Options options) {
  return add_named("", type, std::move(inputs), std::move(options));
}

std::string Translator::add_named(const std::string& after, const std::string& type,
                                  std::vector<std::string> inputs, Options options) {
  std::string name = legal(stem_of(after));
  if (name.empty()) name = legal(node_->label());
  return add_called(name, type, std::move(inputs), std::move(options));
}

std::string Translator::add_called(const std::string& wanted, const std::string& type,
                                   std::vector<std::string> inputs, Options options) {
  const std::string name = unique(wanted.empty() ? legal(type) : wanted);
  graph_.nodes.push_back({name, type, std::move(inputs), std::move(options)});
  return name;
}

void Translator::set_weight(const std::string& module, const std::string& parameter,
                            const Constant& value) {
  set_weight(module, parameter, value, value.shape);
}

void Translator::set_weight(const std::string& module, const std::string& parameter,
                            const Constant& value, Shape shape) {
  if (!value.floating) refuse("its " + parameter + " holds integers, expected floats");
  const bool finite = std::all_of(value.reals.begin(), value.reals.end(),
                                  [](float real) { return std::isfinite(real); });
  if (!finite) refuse("its " + parameter + " holds values that are not finite");
  if (value.size() != shape_size(shape)) {
    refuse("its " + parameter + ": expected " + shape_string(shape) + ", got " +
           shape_string(value.shape));
  }
  weights_[module].push_back(
      {module + "." + parameter, Tensor::from(value.reals, std::move(shape))});
}

void Translator::give(Value value, std::size_t output) {
  if (output >= node_->outputs.size()) return;
  if (!value.known) elements(value.shape);
  values_[node_->outputs[output]] = std::move(value);
}

void Translator::finish_output() {
  const OnnxPort& port = model_.model.outputs[0];
  const std::string& name = model_.outputs[0];
  graph_.output.name = port.name;
  if (!port.dims.empty() && !port.dims[0].size && !port.dims[0].name.empty()) {
    graph_.output.batch = port.dims[0].name;
  }
  const std::string what = "the output '" + printable(port.name) + "'";
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.known) fail(model_.model, what + " is a constant");
  node_ = nullptr;
  Value& value = found->second;
  if (value.whole) fail(model_.model, what + " holds whole numbers");
  try {
    const bool image = value.rank() == 4 && value.channels_last;
    const std::string node = converted(name, image);
    if (node == "input") fail(model_.model, what + " is the input: the graph has no operation");
    const auto order = held_order(value.rank(), image);
    for (const std::size_t axis : order) {
      if (axis != 0) graph_.output_sample.push_back(fixed(value.shape[axis]));
    }
    if (value.shape.empty() || value.shape[0] != Extent{1, true}) {
      refuse("expected the batch as first dimension, got " + to_string(value.shape));
    }
    graph_.output.channels_last = value.rank() == 4 && !image;
    // The output's maker goes last.
    const auto maker = std::find_if(graph_.nodes.begin(), graph_.nodes.end(),
                                    [&](const NodeSpec& n) { return n.name == node; });
    NodeSpec last = std::move(*maker);
    graph_.nodes.erase(maker);
    graph_.nodes.push_back(std::move(last));
  } catch (const Unsupported& error) {
    fail(model_.model, what + ": " + error.what());
  }
}

}  // namespace steelyard::imports
