#include "steelyard/import/graph/cut.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {
namespace {

// What computes the outputs, from the values that are reached on.
class Rest {
 public:
  Rest(const OnnxModel& model, const std::set<std::string>& reached)
      : model_(model), reached_(reached) {
    for (const OnnxNode& node : model.nodes) {
      for (const std::string& output : node.outputs) makers_[output] = &node;
    }
    for (const OnnxPort& output : model.outputs) visit(output.name);
  }

  // In the order in which the graph makes them.
  std::vector<std::string> values() const {
    std::vector<std::string> values;
    for (const OnnxNode& node : model_.nodes) {
      for (const std::string& output : node.outputs) {
        if (cut_.contains(output)) values.push_back(output);
      }
    }
    return values;
  }
  std::size_t nodes() const { return nodes_.size(); }
  std::set<std::string> read() const {
    std::set<std::string> read;
    for (const OnnxNode* node : nodes_) read.insert(node->inputs.begin(), node->inputs.end());
    return read;
  }
  std::vector<std::string> constants() const {
    std::vector<std::string> constants;
    for (const std::string& name : read()) {
      if (model_.initializers.contains(name)) constants.push_back(name);
    }
    return constants;
  }
  double weights() const {
    const std::set<std::string> read = this->read();
    double own = 0, all = 0;
    for (const auto& [name, constant] : model_.initializers) {
      const auto size = static_cast<double>(constant.size());
      all += size;
      if (read.contains(name)) own += size;
    }
    return all > 0 ? own / all : 0;
  }

 private:
  void visit(const std::string& output) {
    std::vector<std::string> waiting{output};
    while (!waiting.empty()) {
      const std::string value = std::move(waiting.back());
      waiting.pop_back();
      if (reached_.contains(value)) {
        cut_.insert(value);
        continue;
      }
      const auto maker = makers_.find(value);
      if (maker == makers_.end() || !nodes_.insert(maker->second).second) continue;
      for (const std::string& input : maker->second->inputs) {
        if (!input.empty()) waiting.push_back(input);
      }
    }
  }

  const OnnxModel& model_;
  const std::set<std::string>& reached_;
  std::map<std::string, const OnnxNode*> makers_;
  std::set<std::string> cut_;
  std::set<const OnnxNode*> nodes_;
};

}  // namespace

std::optional<Cut> cut_of(const OnnxModel& model, const SampleSpec& sample) {
  Reached reached = reach(model, sample);
  const Rest rest(model, reached.values);
  if (rest.nodes() == 0) return std::nullopt;
  Cut cut{rest.values(), rest.nodes(), rest.weights(), std::move(reached.unsupported),
          rest.constants()};
  if (cut.values.empty()) throw UnsupportedGraph(model.source, std::move(cut.reasons));
  return cut;
}

std::string to_string(const Cut& cut, const OnnxModel& model) {
  constexpr std::size_t kMostReasons = 3;
  std::string values, reasons;
  for (const std::string& value : cut.values) {
    values += (values.empty() ? "" : ", ") + printable(value);
  }
  for (std::size_t i = 0; i < std::min(cut.reasons.size(), kMostReasons); ++i) {
    reasons += (i > 0 ? "; " : "") + to_string(cut.reasons[i]);
  }
  if (cut.reasons.size() > kMostReasons) {
    reasons += fmt::format("; and {} more", cut.reasons.size() - kMostReasons);
  }
  return fmt::format("behind {}: {} of {} nodes with {:.1f} % of the weights stay as they are{}",
                     values, cut.nodes, model.nodes.size(), 100 * cut.weights,
                     reasons.empty() ? "" : " (" + reasons + ")");
}

}  // namespace steelyard::imports
