#include "steelyard/qat/ptq/equalize.h"

#include <algorithm>
#include <cmath>

#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/prepare/module_graph.h"

namespace steelyard::qat {
namespace {

template <typename T>
const T* as(const ModuleNode& node) {
  return dynamic_cast<const T*>(node.slot->module().get());
}

// A linear map with the norm after it.
struct Layer {
  std::size_t node = 0;
  Tensor weight{};  // [O, C/groups, ...]; undefined where the node is no such layer
  Tensor bias{};    // undefined without one
  std::int64_t groups = 1;
  const BatchNorm* norm = nullptr;

  std::int64_t outputs() const { return weight.dim(0); }
  std::int64_t inputs() const { return weight.dim(1) * groups; }

  // What the norm multiplies an output by.
  double factor(std::int64_t output) const {
    if (norm == nullptr) return 1;
    const auto at = static_cast<std::size_t>(output);
    const double variance = norm->running_var().span<float>()[at];
    return norm->weight().value().span<float>()[at] / std::sqrt(variance + norm->options().eps);
  }

  // Calls f(weight, output, input) for every weight.
  template <typename F>
  void for_each_weight(const F& f) const {
    const std::int64_t columns = weight.dim(1), taps = weight.size() / (outputs() * columns);
    const std::int64_t outputs_of_group = outputs() / groups;
    auto* at = weight.data<float>();
    for (std::int64_t o = 0; o < outputs(); ++o) {
      for (std::int64_t k = 0; k < columns; ++k) {
        for (std::int64_t t = 0; t < taps; ++t) f(*at++, o, o / outputs_of_group * columns + k);
      }
    }
  }

  // Divides what the layer gives.
  void divide_output(std::int64_t output, double s) const {
    const auto divide = [&](const Tensor& values, std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) {
        float& value = values.data<float>()[i];
        value = static_cast<float>(value / s);
      }
    };
    if (norm != nullptr) {
      divide(norm->weight().value(), output, 1);
      divide(norm->bias().value(), output, 1);
      return;
    }
    const std::int64_t row = weight.size() / outputs();
    divide(weight, output * row, row);
    if (bias.defined()) divide(bias, output, 1);
  }
};

struct Pair {
  Layer first, second;
  std::int64_t columns = 1;  // inputs of the second for each channel of the first

  // Returns how far the largest factor is from 1.
  double equalize() const {
    const auto channels = static_cast<std::size_t>(first.outputs());
    std::vector<double> made(channels, 0.0), read(channels, 0.0), factors(channels, 1.0);
    first.for_each_weight([&](float w, std::int64_t o, std::int64_t) {
      double& most = made[static_cast<std::size_t>(o)];
      most = std::max(most, std::abs(w * first.factor(o)));
    });
    second.for_each_weight([&](float w, std::int64_t o, std::int64_t i) {
      double& most = read[static_cast<std::size_t>(i / columns)];
      most = std::max(most, std::abs(w * second.factor(o)));
    });
    double moved = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      const double s = std::sqrt(made[c] / read[c]);  // sqrt(r1 r2) / r2
      if (!std::isfinite(s) || s <= 0) continue;      // a channel of zeros
      factors[c] = s;
      moved = std::max(moved, std::abs(s - 1));
      first.divide_output(static_cast<std::int64_t>(c), s);
    }
    second.for_each_weight([&](float& w, std::int64_t, std::int64_t i) {
      w = static_cast<float>(w * factors[static_cast<std::size_t>(i / columns)]);
    });
    return moved;
  }
};

class PairFinder {
 public:
  explicit PairFinder(const std::vector<ModuleNode>& nodes) : nodes_(nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i) layers_.push_back(layer_at(i));
  }

  std::vector<Pair> pairs() const {
    std::vector<Pair> pairs;
    for (const Layer& first : layers_) {
      if (!first.weight.defined()) continue;
      const std::size_t reader = through(first.norm == nullptr ? first.node : next(first.node));
      if (reader == kNone || !layers_[reader].weight.defined()) continue;
      const Layer& second = layers_[reader];
      if (second.inputs() % first.outputs() != 0) continue;
      pairs.push_back({first, second, second.inputs() / first.outputs()});
    }
    return pairs;
  }

  // Weights that a parameter has in another layout go back to it.
  void store() const {
    for (const Layer& layer : layers_) {
      const ModuleNode& node = nodes_[layer.node];
      if (!layer.weight.defined() || !node.form->by_output_channel) continue;
      own_parameter(**node.slot, "weight")
          .copy_from(node.form->by_output_channel(**node.slot, layer.weight));
    }
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  // The node that alone reads the output.
  std::size_t next(std::size_t i) const {
    const ModuleNode& node = nodes_[i];
    if (node.is_output || node.readers.size() != 1) return kNone;
    const std::size_t reader = node.readers[0].node;
    return nodes_[reader].inputs.size() == 1 ? reader : kNone;
  }

  // The first node after those through which positive factors of channels pass.
  std::size_t through(std::size_t i) const {
    for (i = next(i); i != kNone; i = next(i)) {
      const ModuleNode& node = nodes_[i];
      const bool passes =
          node.form != nullptr ? node.form->passes_factors : as<Identity>(node) != nullptr;
      if (!passes) return i;
    }
    return kNone;
  }

  Layer layer_at(std::size_t i) const {
    Layer layer{.node = i};
    const QuantizedForm* form = nodes_[i].form;
    if (form == nullptr || !form->groups) return layer;
    const Module& module = **nodes_[i].slot;
    const std::size_t after = next(i);
    if (after != kNone) layer.norm = as<BatchNorm>(nodes_[after]);
    if (is_shared(i) || (layer.norm != nullptr && is_shared(after))) return layer;
    layer.weight = own_parameter(module, "weight");
    if (form->by_output_channel) layer.weight = form->by_output_channel(module, layer.weight);
    layer.bias = own_parameter(module, "bias");
    layer.groups = form->groups(module);
    return layer;
  }

  // Whether the module is at other places too, which its factors would not suit.
  bool is_shared(std::size_t i) const {
    return std::count_if(nodes_.begin(), nodes_.end(), [&](const ModuleNode& other) {
             return other.slot->module() == nodes_[i].slot->module();
           }) > 1;
  }

  const std::vector<ModuleNode>& nodes_;
  std::vector<Layer> layers_;  // of the nodes
};

}  // namespace

std::vector<std::pair<std::string, std::string>> equalize(const std::shared_ptr<Module>& model,
                                                          const QuantizedForms& own_forms) {
  constexpr int kMostSweeps = 20;
  constexpr double kStill = 1e-3;
  Slot root("", model);
  TargetMatcher nothing{QuantizeConfig{}};
  const std::vector<ModuleNode> nodes = module_graph(root, own_forms, nothing);
  const PairFinder finder(nodes);
  const std::vector<Pair> pairs = finder.pairs();
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double moved = 0;
    for (const Pair& pair : pairs) moved = std::max(moved, pair.equalize());
    if (moved < kStill) break;
  }
  finder.store();
  std::vector<std::pair<std::string, std::string>> names;
  for (const Pair& pair : pairs) {
    names.emplace_back(nodes[pair.first.node].path, nodes[pair.second.node].path);
  }
  return names;
}

}  // namespace steelyard::qat
