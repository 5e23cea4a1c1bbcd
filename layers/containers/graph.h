// Modules whose forward is a graph of their children: chains, residual blocks, branches, any DAG.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/headed_model.h"

namespace steelyard {

// A module of several inputs: a node of a graph where branches meet.
class JoinModule : public Module {
 public:
  virtual Variable join(const std::vector<Variable>& inputs, ForwardContext& context) = 0;
  Variable forward(const Variable& x, ForwardContext& context) override {
    return join({x}, context);
  }
};

// The module of a slot, called with these; several for a JoinModule only.
Variable call(const Slot& slot, const std::vector<Variable>& inputs, ForwardContext& context);

// A module that declares which value each of its children reads; forward() follows from that.
// qat::prepare() walks these nodes and need not know the kinds of containers.
class GraphModule : public Module, public HeadedModel {
 public:
  // A child and the values that it reads: kGraphInput, or k + 1 for the output of nodes()[k].
  struct Node {
    Slot* slot;
    std::vector<std::size_t> inputs;
  };
  static constexpr std::size_t kGraphInput = 0;

  // Each after those whose outputs it reads; the last one's output is the graph's, which is the
  // input itself without nodes.
  const std::vector<Node>& nodes() const { return nodes_; }

  Variable forward(const Variable& x, ForwardContext& context) override;
  // forward() with `call` in the place of the children's: it gets each node and what this reads.
  using Call = std::function<Variable(const Node&, const std::vector<Variable>&)>;
  Variable forward_by(const Variable& x, const Call& call) const;
  const Slot* head() const override;
  Variable body(const Variable& x, ForwardContext& context) override;

 protected:
  // Returns the value that the node makes. Throws std::invalid_argument on an input that is no
  // value yet.
  std::size_t add_node(Slot& slot, std::vector<std::size_t> inputs);

 private:
  std::vector<Node> nodes_;
  std::vector<std::size_t> last_reader_;  // per value: its last reader, as a node's index + 1
};

// A graph given by names. Children are named as their nodes are.
class Graph : public GraphModule {
 public:
  struct NamedNode {
    std::string name;
    std::shared_ptr<Module> module;
    // Names of nodes, or "input"; several for a JoinModule only. Empty: the node before this one,
    // the graph's input for the first.
    std::vector<std::string> inputs{};
  };

  // Nodes in any order; the one that nobody reads gives the output. Throws std::invalid_argument,
  // naming the node, on a name twice, an unknown input, a cycle, and when not exactly one node is
  // read by nobody.
  explicit Graph(const std::vector<NamedNode>& nodes);
  std::string type_name() const override { return "Graph"; }
};

// a + b, of one shape.
class Add : public JoinModule {
 public:
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "Add"; }
};

// The inputs joined along their last dimension.
class Cat : public JoinModule {
 public:
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "Cat"; }
};

}  // namespace steelyard
