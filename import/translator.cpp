// What the translation of an operation asks of its node and declares: inputs in a layout, modules,
// weights, outputs.
#include "steelyard/import/translator.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

// What a layer's weight is called without the word for weight; "" where it has none.
std::string stem_of(std::string name) {
  while (name.ends_with('#')) name.pop_back();
  name.erase(0, name.rfind('\n') + 1);  // of a branch: after the node that it is in
  for (const char* end :
       {".weight", "_weights", "_weight", ".weights", "/weight", ".w_0", ".kernel", "/kernel",
        "_kernel", ".scale", "_scale", ".gamma", "/gamma"}) {
    if (name.ends_with(end) && name.size() > std::string_view(end).size()) {
      return name.substr(0, name.size() - std::string_view(end).size());
    }
  }
  return "";
}

// Whether a value that is held in an order of its own has the last dimension last there too.
bool keeps_rows(const ImportedValue& value) {
  return !value.order.empty() && value.order.back() + 1 == value.rank();
}

}  // namespace

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

const OnnxNode* Translator::maker(const std::string& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() ? nullptr : &model_.model.nodes[found->second];
}

const ImportedValue* Translator::value(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.known ? nullptr : &found->second;
}

const Constant* Translator::constant_called(const std::string& name) {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second.known ? &*found->second.known : nullptr;
  const auto initializer = model_.model.initializers.find(name);
  return initializer == model_.model.initializers.end() ? nullptr : &initializer->second;
}

const ImportedValue& Translator::input(std::size_t i) {
  const std::string name = node_->input(i);
  if (name.empty()) refuse("input " + std::to_string(i + 1) + " is missing");
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  // An initializer, copied when it is asked for.
  const auto initializer = model_.model.initializers.find(name);
  if (const auto type = model_.model.unreadable.find(name); type != model_.model.unreadable.end()) {
    refuse("it reads '" + printable(name) +
           "': expected a tensor of numbers or booleans, got type " + type->second);
  }
  if (initializer == model_.model.initializers.end()) {
    refuse("it reads '" + printable(name) + "', an output that is not supported");
  }
  return values_.emplace(name, ImportedValue{.shape = {}, .known = initializer->second})
      .first->second;
}

const Constant& Translator::constant(std::size_t i, const char* what) {
  const ImportedValue& value = input(i);
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

std::string Translator::classes(std::size_t i) {
  input(i);
  return values_.at(node_->input(i)).node;
}

std::string Translator::averaged_row(std::size_t i) {
  const ImportedValue& value = values_.at(node_->input(i));
  const bool is_image = !value.node.empty() && !any_size_;
  return value.averaged.empty() || is_image ? "" : averaged_row_of(node_->input(i));
}

const std::string& Translator::averaged_row_of(const std::string& name) {
  const ImportedValue& value = values_.at(name);
  auto [found, added] = converted_.try_emplace({name + " row", {}});
  if (added) {
    found->second =
        add_called(legal(value.label), "GlobalAvgPool", {node_of(value.averaged, true)}, {});
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
  const auto wrong = std::find_if(value.reals.begin(), value.reals.end(),
                                  [](float real) { return !std::isfinite(real); });
  if (wrong != value.reals.end()) {
    if (!std::isnan(*wrong) || value.origin.empty()) {
      refuse("its " + parameter + " holds values that are not finite");
    }
    // A damaged file: what is around the operation computes nothing either.
    throw InputError(printable(model_.model.source) + ": tensor '" + printable(value.origin) +
                     "': element " + std::to_string(wrong - value.reals.begin()) +
                     " is NaN: expected finite weights");
  }
  if (value.size() != shape_size(shape)) {
    refuse("its " + parameter + ": expected " + shape_string(shape) + ", got " +
           shape_string(value.shape));
  }
  weights_[module].push_back({module + "." + parameter, tensor_of(value, std::move(shape))});
}

// Equal values that come from one initializer are one tensor, by which share_weights() knows them.
Tensor Translator::tensor_of(const Constant& value, Shape shape) {
  if (value.origin.empty()) return Tensor::from(value.reals, std::move(shape));
  std::vector<Tensor>& known = tensors_[value.origin];
  for (const Tensor& tensor : known) {
    const auto values = tensor.span<float>();
    if (tensor.shape() == shape && std::equal(values.begin(), values.end(), value.reals.begin())) {
      return tensor;
    }
  }
  known.push_back(Tensor::from(value.reals, std::move(shape)));
  return known.back();
}

void Translator::give_as(std::size_t i, const std::string& module, ExtentShape shape) {
  const ImportedValue& in = input(i);
  give({.shape = std::move(shape),
        .node = module,
        .channels_last = in.channels_last,
        .order = in.order});
}

std::string Translator::rows(std::size_t i) { return keeps_rows(input(i)) ? as_held(i) : plain(i); }

void Translator::give_rows_of(std::size_t i, const std::string& module, ExtentShape shape) {
  const ImportedValue& in = input(i);
  ImportedValue value{.shape = std::move(shape), .node = module};
  if (keeps_rows(in)) value.order = in.order;
  give(std::move(value));
}

bool Translator::is_read(std::size_t output) const {
  if (output >= node_->outputs.size() || node_->outputs[output].empty()) return false;
  const std::string& name = node_->outputs[output];
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return has(model_.outputs) || std::any_of(model_.model.nodes.begin(), model_.model.nodes.end(),
                                            [&](const OnnxNode& node) { return has(node.inputs); });
}

void Translator::give(ImportedValue value, std::size_t output) {
  if (output >= node_->outputs.size() || node_->outputs[output].empty()) return;
  if (!value.known) elements(value.shape);
  values_[node_->outputs[output]] = std::move(value);
}

std::string Translator::keep(ImportedValue value) {
  // No value of a file has a line break in its name, or it comes first.
  std::string name;
  do {
    name = node_->label() + "\n" + std::to_string(kept_++);
  } while (values_.contains(name) || makers_.contains(name));
  values_[name] = std::move(value);
  return name;
}

}  // namespace steelyard::imports
