#include "steelyard/import/graph/editable_graph.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "steelyard/import/constants.h"

namespace steelyard::imports {

EditableGraph::EditableGraph(OnnxModel of) : model(std::move(of)) {
  for (const OnnxPort& port : model.outputs) outputs.push_back(port.name);
}

const Constant* EditableGraph::constant(const std::string& name) const {
  const auto found = model.initializers.find(name);
  return found == model.initializers.end() ? nullptr : &found->second;
}
std::optional<double> EditableGraph::scalar(const std::string& name) const {
  const Constant* c = constant(name);
  return c == nullptr ? std::nullopt : scalar_of(*c);
}

std::string EditableGraph::add_constant(const std::string& base, Constant value) {
  const auto is_taken = [&](const std::string& name) {
    return model.initializers.contains(name) || maker_.contains(name) ||
           std::any_of(model.inputs.begin(), model.inputs.end(),
                       [&](const OnnxPort& input) { return input.name == name; });
  };
  std::string name = base + "#";
  while (is_taken(name)) name += '#';
  model.initializers.emplace(name, std::move(value));
  return name;
}

void EditableGraph::index() {
  maker_.clear();
  readers_.clear();
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    for (const std::string& output : model.nodes[i].outputs) {
      if (!output.empty()) maker_[output] = i;
    }
    for (const std::string& input : model.nodes[i].inputs) ++readers_[input];
  }
  for (const std::string& output : outputs) ++readers_[output];
}

int EditableGraph::readers_of(const OnnxNode& node) const {
  int readers = 0;
  for (const std::string& output : node.outputs) {
    const auto found = readers_.find(output);
    readers += found == readers_.end() ? 0 : found->second;
  }
  return readers;
}

const OnnxNode* EditableGraph::maker(const std::string& value, const char* op) const {
  const auto found = maker_.find(value);
  if (found == maker_.end()) return nullptr;
  const OnnxNode& node = model.nodes[found->second];
  const bool own = op == std::string_view("Linear");  // the only own one that patterns look for
  return node.op == op && node.domain == (own ? kOwnDomain : "") && node.outputs[0] == value
             ? &node
             : nullptr;
}
const OnnxNode* EditableGraph::inner(const std::string& value, const char* op) const {
  const auto found = readers_.find(value);
  return found != readers_.end() && found->second == 1 ? maker(value, op) : nullptr;
}

void EditableGraph::replace(std::size_t i, OnnxNode by) {
  by.name = model.nodes[i].name;
  by.outputs = {model.nodes[i].outputs[0]};
  for (const std::string& input : by.inputs) ++readers_[input];
  const OnnxNode before = std::exchange(model.nodes[i], std::move(by));
  release(before.inputs);
}

// One reader less of each value, and of what only its maker reads.
void EditableGraph::release(std::vector<std::string> values) {
  while (!values.empty()) {
    const std::string value = std::move(values.back());
    values.pop_back();
    if (--readers_[value] > 0) continue;
    const auto found = maker_.find(value);
    if (found == maker_.end()) continue;
    const OnnxNode& node = model.nodes[found->second];
    if (readers_of(node) == 0) values.insert(values.end(), node.inputs.begin(), node.inputs.end());
  }
}

void EditableGraph::remove_unread() {
  std::set<std::string> wanted(outputs.begin(), outputs.end());
  std::vector<OnnxNode> kept;
  for (std::size_t i = model.nodes.size(); i-- > 0;) {
    OnnxNode& node = model.nodes[i];
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](const std::string& o) { return wanted.contains(o); });
    if (!read) continue;
    wanted.insert(node.inputs.begin(), node.inputs.end());
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  model.nodes = std::move(kept);
  index();
}

}  // namespace steelyard::imports
