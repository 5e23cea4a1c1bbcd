#include "steelyard/qat/prepare/module_graph.h"

#include "steelyard/layers/containers/graph.h"
#include "steelyard/qat/layers/form_table.h"

namespace steelyard::qat {
namespace {

using Scope = TargetMatcher::Scope;

class Flattener {
 public:
  Flattener(const QuantizedForms& own_forms, TargetMatcher& targets, Profile profile)
      : own_forms_(own_forms), targets_(targets), profile_(profile) {}

  std::vector<ModuleNode> run(Slot& root) {
    const std::size_t output = add(root, "", TargetMatcher::kNoScope, {ModuleNode::kModelInput});
    if (output < nodes_.size()) nodes_[output].is_output = true;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
        const std::size_t input = nodes_[i].inputs[k];
        if (input < nodes_.size()) nodes_[input].readers.push_back({i, k});
      }
    }
    return std::move(nodes_);
  }

 private:
  // Adds what a module consists of; returns the node that makes its output.
  std::size_t add(Slot& slot, const std::string& path, Scope container,
                  std::vector<std::size_t> inputs) {
    Module& module = *slot;
    const QuantizedForm* form = find_form(own_forms_, module, profile_);
    const bool weighted = form != nullptr && form->kind == FormKind::kWeighted;
    const Scope scope =
        weighted ? TargetMatcher::kNoScope : targets_.enter(path, module.type_name(), container);
    auto* graph = dynamic_cast<GraphModule*>(&module);
    if (form == nullptr && graph != nullptr) return add_graph(*graph, path, scope, inputs[0]);
    nodes_.push_back({&slot, path, form, container, scope, std::move(inputs)});
    const std::size_t index = nodes_.size() - 1;
    if (form != nullptr) return index;
    for (const auto& child : module.children()) {
      add(*child, join_path(path, child->name()), scope, {ModuleNode::kUnknown});
    }
    return index;
  }

  std::size_t add_graph(GraphModule& graph, const std::string& path, Scope scope,
                        std::size_t input) {
    std::vector<std::size_t> values{input};
    for (const GraphModule::Node& node : graph.nodes()) {
      std::vector<std::size_t> inputs;
      for (const std::size_t value : node.inputs) inputs.push_back(values[value]);
      values.push_back(
          add(*node.slot, join_path(path, node.slot->name()), scope, std::move(inputs)));
    }
    return values.back();
  }

  const QuantizedForms& own_forms_;
  TargetMatcher& targets_;
  Profile profile_;
  std::vector<ModuleNode> nodes_;
};

// Whether a layer of this type has no bound, or no finite slope, as this operand goes to 0.
bool needs_small_values(const std::string& type, std::size_t operand) {
  if (type == "Div") return operand == 1;
  return type == "ConstantDiv" || type == "Sqrt" || type == "Log" || type == "Pow";
}

}  // namespace

Variable own_variable(const Module& module, const std::string& name) {
  for (const NamedParameter& p : module.named_parameters()) {
    if (p.name == name) return p.variable;
  }
  return Variable();
}

Tensor own_parameter(const Module& module, const std::string& name) {
  const Variable parameter = own_variable(module, name);
  return parameter.defined() ? parameter.value() : Tensor();
}

std::vector<ModuleNode> module_graph(Slot& root, const QuantizedForms& own_forms,
                                     TargetMatcher& targets, Profile profile) {
  return Flattener(own_forms, targets, profile).run(root);
}

const ModuleNode* sole_reader(const std::vector<ModuleNode>& nodes, std::size_t i) {
  const ModuleNode& node = nodes[i];
  if (node.is_output || node.readers.size() != 1) return nullptr;
  const ModuleNode& reader = nodes[node.readers[0].node];
  return reader.container == node.container ? &reader : nullptr;
}

std::string reads_small_values(const std::vector<ModuleNode>& nodes, std::size_t i) {
  const ModuleNode& node = nodes[i];
  std::string found;
  if (node.is_output) return found;
  for (const ModuleNode::Reader& reader : node.readers) {
    const std::string type = (*nodes[reader.node].slot)->type_name();
    const bool passed_on = type == "Affine" || type == "Identity";
    found = passed_on                                  ? reads_small_values(nodes, reader.node)
            : needs_small_values(type, reader.operand) ? type
                                                       : "";
    if (found.empty()) return found;
  }
  return found;
}

}  // namespace steelyard::qat
