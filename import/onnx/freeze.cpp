#include "steelyard/import/onnx/freeze.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

// "sr=16000", or what is wrong with it.
struct Given {
  std::string name;
  std::vector<double> values;
};

Given given_from(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  Given given;
  if (equals != std::string::npos) given.name = text.substr(0, equals);
  bool valid = !given.name.empty();
  for (std::size_t begin = equals + 1; valid && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    double value = word == "true" ? 1 : 0;
    if (word != "true" && word != "false") {
      const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      valid = error == std::errc() && at == word.data() + word.size() && std::isfinite(value);
    }
    given.values.push_back(value);
    begin = end + 1;
  }
  if (valid) return given;
  throw InputError("freeze: expected an input and its value such as sr=16000, got '" +
                   printable(text) + "'");
}

[[noreturn]] void refuse_value(const OnnxModel& model, const std::string& name,
                               const std::string& why) {
  throw InputError(printable(model.source) + ": freeze: the input '" + printable(name) + "' " +
                   why);
}

// The input's shape, of which one dimension may follow from the number of values.
Shape shape_for(const OnnxModel& model, const OnnxPort& port, std::size_t values) {
  const auto refuse_count = [&] {
    refuse_value(model, port.name,
                 "is " + to_string(port.dims) + ", got " + std::to_string(values) +
                     (values == 1 ? " value" : " values"));
  };
  const auto count = static_cast<std::int64_t>(values);
  std::int64_t known = 1;
  Shape shape;
  std::size_t free = port.dims.size();
  for (const OnnxDim& dim : port.dims) {
    if (!dim.size && free < port.dims.size()) refuse_count();
    if (!dim.size) free = shape.size();
    shape.push_back(dim.size.value_or(1));
    if (shape.back() > count || shape.back() > count / known) refuse_count();
    known *= shape.back();
  }
  if (count % known != 0 || (free == port.dims.size() && count != known)) refuse_count();
  if (free < port.dims.size()) shape[free] = count / known;
  return shape;
}

Constant constant_for(const OnnxModel& model, const OnnxPort& port, const Given& given) {
  Constant constant{.shape = shape_for(model, port, given.values.size())};
  const bool truths = port.type == "bool";
  const bool whole = truths || port.type == "int32" || port.type == "int64";
  constant.floating = !whole;
  if (!whole && port.type != "float" && port.type != "float16" && port.type != "double" &&
      port.type != "bfloat16") {
    refuse_value(model, port.name, "is of the type " + port.type + ", which cannot be given");
  }
  const double most = port.type == "int32" ? std::numeric_limits<std::int32_t>::max() : 0x1p53;
  for (const double value : given.values) {
    if (!whole) {
      constant.reals.push_back(static_cast<float>(value));
      continue;
    }
    const bool fits =
        truths ? value == 0 || value == 1 : value == std::floor(value) && std::abs(value) <= most;
    if (!fits) {
      refuse_value(model, port.name,
                   std::string("expects ") + (truths ? "true or false" : "whole numbers") + " (" +
                       port.type + ")");
    }
    constant.integers.push_back({static_cast<std::int64_t>(value)});
  }
  return constant;
}

// Gives what a branch computes names that nothing outside of it has.
class Inliner {
 public:
  Inliner(OnnxModel& model, const OnnxNode& node, const OnnxBranch& branch)
      : model_(model), node_(node), branch_(branch) {}

  std::vector<OnnxNode> run() {
    for (const auto& [name, constant] : branch_.initializers) {
      model_.initializers[renamed(name)] = constant;
    }
    for (const OnnxNode& inner : branch_.nodes) {
      for (const std::string& output : inner.outputs) {
        if (!output.empty()) renamed(output);
      }
    }
    std::vector<OnnxNode> nodes = branch_.nodes;
    for (OnnxNode& inner : nodes) rename(inner);
    for (std::size_t i = 0; i < node_.outputs.size() && i < branch_.outputs.size(); ++i) {
      if (node_.outputs[i].empty()) continue;
      nodes.push_back({.name = node_.label() + "/" + std::to_string(i),
                       .op = "Identity",
                       .inputs = {name_of(branch_.outputs[i])},
                       .outputs = {node_.outputs[i]}});
    }
    return nodes;
  }

 private:
  const std::string& renamed(const std::string& name) {
    return names_.emplace(name, node_.label() + "\n" + name).first->second;
  }
  const std::string& name_of(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? name : found->second;
  }
  void rename(OnnxNode& inner) const {
    inner.name = inner.label();
    for (std::string& input : inner.inputs) input = name_of(input);
    for (std::string& output : inner.outputs) output = name_of(output);
    // What branches inside of it read from here.
    for (auto& [name, branch] : inner.branches) {
      const auto changed = std::make_shared<OnnxBranch>(*branch);
      for (OnnxNode& deeper : changed->nodes) rename(deeper);
      for (std::string& output : changed->outputs) output = name_of(output);
      branch = changed;
    }
  }

  OnnxModel& model_;
  const OnnxNode& node_;
  const OnnxBranch& branch_;
  std::map<std::string, std::string> names_;
};

}  // namespace

void freeze_inputs(OnnxModel& model, const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    const Given one = given_from(text);
    const auto port = std::find_if(model.inputs.begin(), model.inputs.end(),
                                   [&](const OnnxPort& input) { return input.name == one.name; });
    if (port == model.inputs.end()) {
      std::string names;
      for (const OnnxPort& input : model.inputs) names += (names.empty() ? "" : ", ") + input.name;
      throw InputError(printable(model.source) + ": freeze: no input is called '" +
                       printable(one.name) + "'; the inputs are " + printable(names));
    }
    model.initializers[one.name] = constant_for(model, *port, one);
    model.inputs.erase(port);
  }
}

std::vector<OnnxNode> chosen_branch(OnnxModel& model, const OnnxNode& node) {
  if (node.op != "If" || !node.domain.empty()) return {};
  const auto condition = model.initializers.find(node.input(0));
  if (condition == model.initializers.end() || condition->second.size() != 1) return {};
  const Constant& known = condition->second;
  if (known.floating || known.integers[0].of_batch) return {};
  const auto branch =
      node.branches.find(known.integers[0].value != 0 ? "then_branch" : "else_branch");
  if (branch == node.branches.end()) return {};
  return Inliner(model, node, *branch->second).run();
}

}  // namespace steelyard::imports
