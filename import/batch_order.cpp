#include "steelyard/import/batch_order.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace steelyard::imports {
namespace {

using List = std::vector<std::int64_t>;

// Whether a dimension may have such a position, counted from one of its ends: others are refused
// where the node is translated.
bool is_position(std::int64_t at) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return at >= -kMost && at <= kMost;
}

// One position of the first dimension, which goes.
struct Taken {
  std::int64_t position = 0;
  std::size_t node = 0;  // that gives it
};

class Rewriter {
 public:
  Rewriter(std::vector<OnnxNode> nodes, const std::map<std::string, Constant>& constants,
           const std::vector<std::string>& outputs)
      : nodes_(std::move(nodes)), constants_(constants), outputs_(outputs.begin(), outputs.end()) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::string& input : nodes_[i].inputs) readers_[input].push_back(i);
      names_.insert(nodes_[i].inputs.begin(), nodes_[i].inputs.end());
      names_.insert(nodes_[i].outputs.begin(), nodes_[i].outputs.end());
    }
  }

  std::vector<OnnxNode> run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (const auto taken = all_taken(nodes_[i])) {
        for (const Taken& one : *taken) replaced_[one.node] = taken_before(nodes_[i], one);
      }
    }
    std::vector<OnnxNode> result;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto found = replaced_.find(i);
      if (found == replaced_.end()) {
        result.push_back(std::move(nodes_[i]));
      } else {
        for (OnnxNode& node : found->second) result.push_back(std::move(node));
      }
    }
    return result;  // what is read no more is removed later
  }

 private:
  // Nothing where somebody reads the transposed value as a whole.
  std::optional<std::vector<Taken>> all_taken(const OnnxNode& node) const {
    const List order = node.integers("perm");
    if (node.op != "Transpose" || !node.domain.empty() || order.size() < 2 || order[0] == 0 ||
        outputs_.contains(node.outputs[0])) {
      return std::nullopt;
    }
    std::vector<Taken> all;
    const auto found = readers_.find(node.outputs[0]);
    if (found == readers_.end()) return std::nullopt;
    for (const std::size_t reader : found->second) {
      const std::vector<Taken> taken = taken_by(reader, std::ssize(order));
      if (taken.empty()) return std::nullopt;
      all.insert(all.end(), taken.begin(), taken.end());
    }
    return all;
  }

  std::vector<Taken> taken_by(std::size_t reader, std::int64_t rank) const {
    const OnnxNode& node = nodes_[reader];
    if (!node.domain.empty()) return {};
    const auto is_first = [&](std::int64_t axis) { return axis == 0 || axis == -rank; };
    if (node.op == "Gather" && is_first(node.integer("axis", 0))) {
      const Constant* index = constant(node.input(1));
      if (index == nullptr || index->floating || !index->shape.empty()) return {};
      const std::int64_t position = index->integers[0].value;
      if (!is_position(position)) return {};
      return {{position, reader}};
    }
    if (node.op == "Slice") {
      const List starts = integers(node, "starts", 1), ends = integers(node, "ends", 2);
      const List axes = integers(node, "axes", 3), steps = integers(node, "steps", 4);
      const bool one = starts.size() == 1 && ends.size() == 1 && is_position(starts[0]) &&
                       (axes.empty() || (axes.size() == 1 && is_first(axes[0]))) &&
                       (steps.empty() || steps == List{1}) &&
                       (ends[0] == starts[0] + 1 ||
                        (starts[0] == -1 && ends[0] >= std::numeric_limits<std::int32_t>::max()));
      const auto squeezed = one ? squeeze_of(node.outputs[0], rank) : std::nullopt;
      return squeezed ? std::vector<Taken>{{starts[0], *squeezed}} : std::vector<Taken>{};
    }
    if (node.op == "Split" && is_first(node.integer("axis", 0))) {
      const List sizes = integers(node, "split", 1);
      if (!std::all_of(sizes.begin(), sizes.end(), [](std::int64_t s) { return s == 1; }))
        return {};
      std::vector<Taken> taken;
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        const auto squeezed = squeeze_of(node.outputs[i], rank);
        if (!squeezed) return {};
        taken.push_back({static_cast<std::int64_t>(i), *squeezed});
      }
      return taken;
    }
    return {};
  }

  // The only reader of a value, where that takes away its first dimension.
  std::optional<std::size_t> squeeze_of(const std::string& value, std::int64_t rank) const {
    const auto found = readers_.find(value);
    if (found == readers_.end() || found->second.size() != 1 || outputs_.contains(value)) {
      return std::nullopt;
    }
    const OnnxNode& node = nodes_[found->second[0]];
    const List axes = integers(node, "axes", 1);
    const bool first = axes == List{0} || axes == List{-rank};
    if (node.op != "Squeeze" || !node.domain.empty() || !first) return std::nullopt;
    return found->second[0];
  }

  // Slice, Squeeze and Transpose in place of the node that took it after the Transpose.
  std::vector<OnnxNode> taken_before(const OnnxNode& transpose, const Taken& taken) {
    const List order = transpose.integers("perm");
    const std::int64_t axis = order[0], position = taken.position;
    const std::int64_t end =
        position == -1 ? std::numeric_limits<std::int64_t>::max() : position + 1;
    List rest;
    for (std::size_t i = 1; i < order.size(); ++i) {
      rest.push_back(order[i] > axis ? order[i] - 1 : order[i]);
    }
    const OnnxNode& last = nodes_[taken.node];
    const std::string name = last.outputs[0];
    const std::string sliced = unique(name + "#slice"), squeezed = unique(name + "#squeeze");
    OnnxNode slice{
        .name = sliced, .op = "Slice", .inputs = {transpose.input(0)}, .outputs = {sliced}};
    slice.attributes = {{"starts", List{position}}, {"ends", List{end}}, {"axes", List{axis}}};
    OnnxNode squeeze{.name = squeezed, .op = "Squeeze", .inputs = {sliced}, .outputs = {squeezed}};
    squeeze.attributes = {{"axes", List{axis}}};
    OnnxNode turned{.name = last.name, .op = "Transpose", .inputs = {squeezed}, .outputs = {name}};
    turned.attributes = {{"perm", rest}};
    return {slice, squeeze, turned};
  }

  std::string unique(std::string name) {
    while (constants_.contains(name) || !names_.insert(name).second) name += '#';
    return name;
  }

  const Constant* constant(const std::string& name) const {
    const auto found = constants_.find(name);
    return found == constants_.end() ? nullptr : &found->second;
  }

  // An attribute that newer operation sets have as input `i`; empty where it is not known.
  List integers(const OnnxNode& node, const char* name, std::size_t i) const {
    if (node.has(name)) return node.integers(name);
    List values;
    const Constant* given = constant(node.input(i));
    if (given == nullptr || given->floating) return values;
    for (const Extent& extent : given->integers) {
      if (extent.of_batch) return {};
      values.push_back(extent.value);
    }
    return values;
  }

  std::vector<OnnxNode> nodes_;
  const std::map<std::string, Constant>& constants_;
  std::set<std::string> outputs_;
  std::set<std::string> names_;  // of the nodes' values
  std::map<std::string, std::vector<std::size_t>> readers_;
  std::map<std::size_t, std::vector<OnnxNode>> replaced_;
};

}  // namespace

std::vector<OnnxNode> with_batch_first(std::vector<OnnxNode> nodes,
                                       const std::map<std::string, Constant>& constants,
                                       const std::vector<std::string>& outputs) {
  return Rewriter(std::move(nodes), constants, outputs).run();
}

}  // namespace steelyard::imports
