#include "steelyard/import/einsum.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "steelyard/import/constants.h"

namespace steelyard::imports {
namespace {

// A dimension each.
using Letters = std::string;

struct Equation {
  std::vector<Letters> operands;
  Letters result;
};

bool are_distinct(const Letters& letters) {
  return std::set<char>(letters.begin(), letters.end()).size() == letters.size();
}

// Nothing for an equation with an ellipsis, a diagonal or no result.
std::optional<Equation> parsed(std::string text) {
  std::erase(text, ' ');
  const auto arrow = text.find("->");
  if (arrow == std::string::npos) return std::nullopt;
  Equation equation{{""}, text.substr(arrow + 2)};
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') {
      equation.operands.emplace_back();
    } else {
      equation.operands.back() += c;
    }
  }
  std::vector<Letters> all = equation.operands;
  all.push_back(equation.result);
  for (const Letters& letters : all) {
    const bool known = std::all_of(letters.begin(), letters.end(),
                                   [](unsigned char c) { return std::isalpha(c) != 0; });
    if (!known || !are_distinct(letters)) return std::nullopt;
  }
  return equation;
}

bool has(const Letters& letters, char c) { return letters.find(c) != Letters::npos; }

// The dimensions of two operands: those of both and of the result, of both but not of the result,
// and those of one of them.
struct Groups {
  Letters batch, summed, of_a, of_b;
};

// Nothing where a dimension of one operand is added up by itself, or the result has others.
std::optional<Groups> groups_of(const Letters& a, const Letters& b, const Letters& result) {
  Groups groups;
  for (const char c : a) {
    if (has(b, c)) {
      (has(result, c) ? groups.batch : groups.summed) += c;
    } else if (has(result, c)) {
      groups.of_a += c;
    } else {
      return std::nullopt;
    }
  }
  for (const char c : b) {
    if (has(a, c)) continue;
    if (!has(result, c)) return std::nullopt;
    groups.of_b += c;
  }
  const std::size_t count = groups.batch.size() + groups.of_a.size() + groups.of_b.size();
  return count == result.size() ? std::optional(groups) : std::nullopt;
}

std::vector<std::int64_t> order_of(const Letters& from, const Letters& to) {
  std::vector<std::int64_t> order;
  for (const char c : to) order.push_back(static_cast<std::int64_t>(from.find(c)));
  return order;
}

class EinsumRewriter {
 public:
  explicit EinsumRewriter(EditableGraph& graph) : graph_(graph) {}

  void run() {
    for (OnnxNode& node : graph_.model.nodes) {
      node_ = &node;
      const std::size_t made = nodes_.size();
      if (node.op == "Einsum" && node.domain.empty() && rewritten()) continue;
      nodes_.resize(made);
      nodes_.push_back(std::move(node));
    }
    graph_.model.nodes = std::move(nodes_);
    graph_.index();
  }

 private:
  bool rewritten() {
    const auto equation = parsed(node_->text("equation", ""));
    if (!equation || equation->operands.size() != node_->inputs.size()) return false;
    if (equation->operands.size() == 1) return transpose_alone(*equation);
    if (equation->operands.size() != 2) return false;
    std::size_t a = 0, b = 1;
    if (graph_.constant(node_->input(0)) != nullptr) std::swap(a, b);  // a constant goes last
    const auto groups = groups_of(equation->operands[a], equation->operands[b], equation->result);
    if (!groups) return false;
    const bool by_constant = graph_.constant(node_->input(b)) != nullptr;
    return by_constant ? by_matrix(*equation, *groups, a, b) : of_two(*equation, *groups, a, b);
  }

  bool transpose_alone(const Equation& equation) {
    const Letters& from = equation.operands[0];
    if (from.size() != equation.result.size()) return false;
    for (const char c : from) {
      if (!has(equation.result, c)) return false;
    }
    last("Transpose", {node_->input(0)}, {{"perm", order_of(from, equation.result)}});
    return true;
  }

  // Two computed operands: [batch, own, summed] and [batch, summed, own].
  bool of_two(const Equation& equation, const Groups& groups, std::size_t a, std::size_t b) {
    if (groups.summed.size() > 1 || groups.of_a.size() > 1 || groups.of_b.size() > 1) return false;
    const auto operand = [&](std::size_t i, const Letters& own, bool summed_last) {
      const Letters order =
          groups.batch + (summed_last ? own + groups.summed : groups.summed + own);
      std::string value = turned(node_->input(i), equation.operands[i], order);
      std::vector<std::int64_t> ones;
      const auto rank = static_cast<std::int64_t>(groups.batch.size()) + 2;
      if (own.empty()) ones.push_back(summed_last ? rank - 2 : rank - 1);
      if (groups.summed.empty()) ones.push_back(summed_last ? rank - 1 : rank - 2);
      std::sort(ones.begin(), ones.end());
      return ones.empty() ? value : add("Unsqueeze", {value}, {{"axes", ones}});
    };
    const std::string left = operand(a, groups.of_a, true), right = operand(b, groups.of_b, false);
    std::string product = add("MatMul", {left, right});
    std::vector<std::int64_t> ones;
    const auto rank = static_cast<std::int64_t>(groups.batch.size());
    if (groups.of_a.empty()) ones.push_back(rank);
    if (groups.of_b.empty()) ones.push_back(rank + 1);
    if (!ones.empty()) product = add("Squeeze", {product}, {{"axes", ones}});
    finish(product, groups.batch + groups.of_a + groups.of_b, equation.result);
    return true;
  }

  // A computed operand times a matrix, which the constant is once its dimensions are joined.
  bool by_matrix(const Equation& equation, const Groups& groups, std::size_t a, std::size_t b) {
    const Constant& constant = *graph_.constant(node_->input(b));
    const Letters& letters = equation.operands[b];
    if (!groups.batch.empty() || groups.summed.empty() || groups.of_a.empty()) return false;
    if (constant.shape.size() != letters.size() || !constant.floating) return false;
    const auto sizes = [&](const Letters& of) {
      std::vector<std::int64_t> all;
      for (const char c : of) all.push_back(constant.shape[letters.find(c)]);
      return all;
    };
    Constant matrix = transposed(constant, order_of(letters, groups.summed + groups.of_b));
    matrix.shape = {shape_size(sizes(groups.summed)), shape_size(sizes(groups.of_b))};
    const std::vector<std::int64_t> kept(groups.of_a.size(), 0);  // as the input has them
    const auto reshaped = [&](const std::string& value, const std::vector<std::int64_t>& to) {
      Constant shape{.shape = {std::ssize(kept) + std::ssize(to)}};
      for (const auto* part : {&kept, &to}) {
        for (const std::int64_t size : *part) shape.integers.push_back({size});
      }
      return add("Reshape", {value, graph_.add_constant(node_->label(), std::move(shape))});
    };
    std::string value = turned(node_->input(a), equation.operands[a], groups.of_a + groups.summed);
    if (groups.summed.size() > 1) value = reshaped(value, {matrix.shape[0]});
    const std::string name = graph_.add_constant(node_->input(b), std::move(matrix));
    value = add("MatMul", {value, name});
    if (groups.of_b.size() != 1) value = reshaped(value, sizes(groups.of_b));
    finish(value, groups.of_a + groups.of_b, equation.result);
    return true;
  }

  std::string turned(const std::string& value, const Letters& from, const Letters& to) {
    if (from == to) return value;
    return add("Transpose", {value}, {{"perm", order_of(from, to)}});
  }

  void finish(const std::string& value, const Letters& from, const Letters& to) {
    if (from == to) return last("Identity", {value}, {});
    last("Transpose", {value}, {{"perm", order_of(from, to)}});
  }

  std::string add(const std::string& op, std::vector<std::string> inputs,
                  std::map<std::string, OnnxAttributeValue> attributes = {}) {
    // No value of a file has a line break in its name, or the file's comes first.
    const std::string name = node_->outputs[0] + "\n" + std::to_string(nodes_.size());
    nodes_.push_back({.name = node_->label(),
                      .op = op,
                      .inputs = std::move(inputs),
                      .outputs = {name},
                      .attributes = std::move(attributes)});
    return name;
  }

  // What gives the node's output.
  void last(const std::string& op, std::vector<std::string> inputs,
            std::map<std::string, OnnxAttributeValue> attributes) {
    add(op, std::move(inputs), std::move(attributes));
    nodes_.back().outputs = node_->outputs;
  }

  EditableGraph& graph_;
  std::vector<OnnxNode> nodes_;
  OnnxNode* node_ = nullptr;
};

}  // namespace

void spell_out_einsum(EditableGraph& graph) { EinsumRewriter(graph).run(); }

}  // namespace steelyard::imports
