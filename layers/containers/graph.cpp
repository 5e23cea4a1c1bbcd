#include "steelyard/layers/containers/graph.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/concat.h"

namespace steelyard {
namespace {

using NamedNodes = std::vector<Graph::NamedNode>;
constexpr std::size_t kInput = SIZE_MAX;

// The indices of the nodes that each node reads, kInput for the graph's input.
std::vector<std::vector<std::size_t>> edges(const NamedNodes& nodes) {
  std::map<std::string, std::size_t> index{{"input", kInput}};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!index.emplace(nodes[i].name, i).second) {
      throw std::invalid_argument("[Graph] the name '" + nodes[i].name + "' is taken");
    }
  }
  std::vector<std::vector<std::size_t>> read(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].inputs.empty()) read[i] = {i == 0 ? kInput : i - 1};
    for (const std::string& name : nodes[i].inputs) {
      const auto found = index.find(name);
      if (found == index.end()) {
        throw std::invalid_argument("[Graph] " + nodes[i].name + " reads '" + name +
                                    "', which is no node");
      }
      read[i].push_back(found->second);
    }
  }
  return read;
}

// The order to compute nodes in: as given, but each after those that it reads.
std::vector<std::size_t> sorted(const NamedNodes& nodes,
                                const std::vector<std::vector<std::size_t>>& read) {
  std::vector<std::size_t> order;
  std::vector<bool> done(nodes.size(), false);
  const auto ready = [&](std::size_t i) {
    return !done[i] && std::all_of(read[i].begin(), read[i].end(),
                                   [&](std::size_t k) { return k == kInput || done[k]; });
  };
  while (order.size() < nodes.size()) {
    std::size_t next = 0;
    while (next < nodes.size() && !ready(next)) ++next;
    if (next == nodes.size()) {
      const auto stuck = std::find(done.begin(), done.end(), false) - done.begin();
      throw std::invalid_argument("[Graph] " + nodes[static_cast<std::size_t>(stuck)].name +
                                  " waits for its own output: the graph has a cycle");
    }
    done[next] = true;
    order.push_back(next);
  }
  return order;
}

}  // namespace

Variable call(const Slot& slot, const std::vector<Variable>& inputs, ForwardContext& context) {
  if (inputs.size() == 1) return slot(inputs[0], context);
  auto* join = dynamic_cast<JoinModule*>(slot.module().get());
  if (join == nullptr) {
    throw std::invalid_argument("[Graph] " + slot.name() + " (" + slot->type_name() +
                                "): expected 1 input, got " + std::to_string(inputs.size()));
  }
  const TapeScope scope(slot.name());
  return join->join(inputs, context);
}

std::size_t GraphModule::add_node(Slot& slot, std::vector<std::size_t> inputs) {
  if (last_reader_.empty()) last_reader_.push_back(0);
  nodes_.push_back({&slot, std::move(inputs)});
  for (const std::size_t input : nodes_.back().inputs) {
    if (input >= last_reader_.size()) {
      throw std::invalid_argument("[Graph] " + slot.name() + " reads value " +
                                  std::to_string(input) + " before it is made");
    }
    last_reader_[input] = nodes_.size();
  }
  last_reader_.push_back(0);
  return nodes_.size();
}

Variable GraphModule::forward(const Variable& x, ForwardContext& context) {
  return forward_by(x, [&](const Node& node, const std::vector<Variable>& inputs) {
    return call(*node.slot, inputs, context);
  });
}

Variable GraphModule::forward_by(const Variable& x, const Call& call) const {
  std::vector<Variable> values{x};
  for (const Node& node : nodes_) {
    std::vector<Variable> inputs;
    for (const std::size_t input : node.inputs) inputs.push_back(values[input]);
    for (const std::size_t input : node.inputs) {
      if (last_reader_[input] == values.size()) values[input] = Variable();
    }
    values.push_back(call(node, inputs));
  }
  return values.back();
}

const Slot* GraphModule::head() const {
  return nodes_.empty() || nodes_.back().inputs.size() != 1 ? nullptr : nodes_.back().slot;
}

Variable GraphModule::body(const Variable& x, ForwardContext& context) {
  const Slot* const last = head();
  return forward_by(x, [&](const Node& node, const std::vector<Variable>& inputs) {
    const bool is_head = last != nullptr && &node == &nodes_.back();
    return is_head ? inputs[0] : call(*node.slot, inputs, context);
  });
}

Graph::Graph(const std::vector<NamedNode>& nodes) {
  const auto read = edges(nodes);
  std::vector<std::size_t> order = sorted(nodes, read);
  std::vector<bool> is_read(nodes.size(), false);
  for (const auto& inputs : read) {
    for (const std::size_t k : inputs) {
      if (k != kInput) is_read[k] = true;
    }
  }
  if (std::count(is_read.begin(), is_read.end(), false) != 1) {
    std::string unread;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!is_read[i]) unread += (unread.empty() ? "" : ", ") + nodes[i].name;
    }
    throw std::invalid_argument("[Graph] expected one node that nobody reads, the output, got " +
                                (unread.empty() ? std::string("none") : unread));
  }
  const auto output = std::find(is_read.begin(), is_read.end(), false) - is_read.begin();
  std::rotate(std::find(order.begin(), order.end(), static_cast<std::size_t>(output)),
              std::find(order.begin(), order.end(), static_cast<std::size_t>(output)) + 1,
              order.end());
  std::vector<Slot*> slots;
  for (const NamedNode& node : nodes) slots.push_back(&register_child(node.name, node.module));
  std::vector<std::size_t> value(nodes.size(), kGraphInput);
  for (const std::size_t i : order) {
    std::vector<std::size_t> inputs;
    for (const std::size_t k : read[i]) inputs.push_back(k == kInput ? kGraphInput : value[k]);
    value[i] = add_node(*slots[i], std::move(inputs));
  }
}

Variable Add::join(const std::vector<Variable>& inputs, ForwardContext&) {
  if (inputs.size() != 2) {
    throw std::invalid_argument("[Add] expected 2 inputs, got " + std::to_string(inputs.size()));
  }
  return add(inputs[0], inputs[1]);
}

Variable Cat::join(const std::vector<Variable>& inputs, ForwardContext&) { return concat(inputs); }

}  // namespace steelyard
