#include "steelyard/import/simplify.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "steelyard/import/batch_order.h"
#include "steelyard/import/fold.h"
#include "steelyard/import/unsupported.h"
#include "steelyard/import/window_padding.h"

namespace steelyard::imports {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

class Simplifier {
 public:
  explicit Simplifier(OnnxModel model) : model_(std::move(model)) {
    for (const OnnxPort& port : model_.outputs) outputs_.push_back(port.name);
  }

  SimplifiedModel run() {
    fold_constants();
    index();
    drop_what_does_nothing();
    model_.nodes = with_batch_first(std::move(model_.nodes), model_.initializers, outputs_);
    remove_unread();
    // From the end: the outermost node of a pattern comes first.
    for (std::size_t i = model_.nodes.size(); i-- > 0;) {
      if (readers_of(model_.nodes[i]) > 0) recognise(i);
    }
    remove_unread();
    // In order: a sum is of a layer that is one already.
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) recognise_layer(i);
    remove_unread();
    return {std::move(model_), std::move(outputs_)};
  }

 private:
  // A product of values and a factor, however it was written.
  struct Product {
    double factor = 1;
    std::vector<std::string> values = {};
    std::size_t depth = 0;
  };

  const Constant* constant(const std::string& name) const {
    const auto found = model_.initializers.find(name);
    return found == model_.initializers.end() ? nullptr : &found->second;
  }
  std::optional<double> scalar(const std::string& name) const {
    const Constant* c = constant(name);
    return c == nullptr ? std::nullopt : scalar_of(*c);
  }

  void fold_constants() {
    std::vector<OnnxNode> left;
    for (OnnxNode& node : model_.nodes) {
      std::vector<const Constant*> inputs;
      bool known = true;
      for (const std::string& input : node.inputs) {
        inputs.push_back(input.empty() ? nullptr : constant(input));
        known = known && (input.empty() || inputs.back() != nullptr);
      }
      if (!known || !fold_one(node, inputs)) left.push_back(std::move(node));
    }
    model_.nodes = std::move(left);
  }

  bool fold_one(const OnnxNode& node, const std::vector<const Constant*>& inputs) {
    try {
      auto values = fold(node, inputs);
      if (!values || values->size() < node.outputs.size()) return false;
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        model_.initializers[node.outputs[i]] = std::move((*values)[i]);
      }
      return true;
    } catch (const Unsupported&) {
      return false;  // told when the node is translated, if anybody reads it
    }
  }

  // --- who makes and who reads

  void index() {
    maker_.clear();
    readers_.clear();
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      for (const std::string& output : model_.nodes[i].outputs) maker_[output] = i;
      for (const std::string& input : model_.nodes[i].inputs) ++readers_[input];
    }
    for (const std::string& output : outputs_) ++readers_[output];
  }

  int readers_of(const OnnxNode& node) const {
    int readers = 0;
    for (const std::string& output : node.outputs) {
      const auto found = readers_.find(output);
      readers += found == readers_.end() ? 0 : found->second;
    }
    return readers;
  }

  // Who makes the value, if that is the operation.
  const OnnxNode* maker(const std::string& value, const char* op) const {
    const auto found = maker_.find(value);
    if (found == maker_.end()) return nullptr;
    const OnnxNode& node = model_.nodes[found->second];
    return node.op == op && node.outputs[0] == value ? &node : nullptr;
  }
  // The same where nobody else reads it.
  const OnnxNode* inner(const std::string& value, const char* op) const {
    const auto found = readers_.find(value);
    return found != readers_.end() && found->second == 1 ? maker(value, op) : nullptr;
  }

  // The operand of a commutative node that is not the constant scalar; "" where none is.
  std::string beside_scalar(const OnnxNode& node, double value) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto number = scalar(node.input(i));
      if (number && near(*number, value)) return node.input(1 - i);
    }
    return "";
  }

  // --- what does nothing

  bool does_nothing(const OnnxNode& node) const {
    if (!node.domain.empty() || node.inputs.empty()) return false;
    if (node.op == "Identity") return true;
    if (node.op == "Dropout") {
      return std::all_of(node.outputs.begin() + 1, node.outputs.end(),
                         [&](const std::string& o) { return !readers_.contains(o); });
    }
    if (node.op != "Mul" && node.op != "Div" && node.op != "Add" && node.op != "Sub") return false;
    const Constant* second = constant(node.input(1));
    if (second == nullptr || second->shape.size() > 1 || constant(node.input(0))) return false;
    const auto value = scalar_of(*second);
    return value && *value == (node.op == "Mul" || node.op == "Div" ? 1 : 0);
  }

  void drop_what_does_nothing() {
    std::map<std::string, std::string> stands_for;
    const auto resolved = [&](const std::string& name) {
      const auto found = stands_for.find(name);
      return found == stands_for.end() ? name : found->second;
    };
    for (OnnxNode& node : model_.nodes) {
      for (std::string& input : node.inputs) input = resolved(input);
      if (does_nothing(node)) stands_for[node.outputs[0]] = node.inputs[0];
    }
    for (std::string& output : outputs_) output = resolved(output);
    index();
  }

  void remove_unread() {
    std::set<std::string> wanted(outputs_.begin(), outputs_.end());
    std::vector<OnnxNode> kept;
    for (std::size_t i = model_.nodes.size(); i-- > 0;) {
      OnnxNode& node = model_.nodes[i];
      const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](const std::string& o) { return wanted.contains(o); });
      if (!read) continue;
      wanted.insert(node.inputs.begin(), node.inputs.end());
      kept.push_back(std::move(node));
    }
    std::reverse(kept.begin(), kept.end());
    model_.nodes = std::move(kept);
    index();
  }

  // --- activations and norms

  void replace(std::size_t i, OnnxNode by) {
    by.name = model_.nodes[i].name;
    by.outputs = {model_.nodes[i].outputs[0]};
    for (const std::string& input : by.inputs) ++readers_[input];
    const OnnxNode before = std::exchange(model_.nodes[i], std::move(by));
    release(before.inputs);
  }

  // One reader less of each value, and of what only its maker reads.
  void release(std::vector<std::string> values) {
    while (!values.empty()) {
      const std::string value = std::move(values.back());
      values.pop_back();
      if (--readers_[value] > 0) continue;
      const auto found = maker_.find(value);
      if (found == maker_.end()) continue;
      const OnnxNode& node = model_.nodes[found->second];
      if (readers_of(node) == 0)
        values.insert(values.end(), node.inputs.begin(), node.inputs.end());
    }
  }

  void recognise(std::size_t i) {
    const OnnxNode& node = model_.nodes[i];
    if (!node.domain.empty()) return;
    if (node.op == "Mul" || node.op == "Div") {
      Product product;
      collect(node, product);
      if (auto known = activation(product)) replace(i, std::move(*known));
    } else if (node.op == "Add") {
      if (auto norm = layer_norm(node)) replace(i, std::move(*norm));
    } else if (node.op == "Where") {
      if (auto quotient = quotient_or_zero(node)) replace(i, std::move(*quotient));
    } else if (const OnnxNode* pad = inner(node.input(0), "Pad")) {
      if (auto window = with_padding(node, *pad, model_.initializers)) {
        replace(i, std::move(*window));
      }
    }
  }

  void collect(const std::string& value, Product& product) const {
    constexpr std::size_t kMostFactors = 8;  // of those that are recognised
    const OnnxNode* node = inner(value, "Mul");
    if (node == nullptr) node = inner(value, "Div");
    if (node == nullptr || !node->domain.empty() || ++product.depth > kMostFactors) {
      product.values.push_back(value);
    } else {
      collect(*node, product);
    }
  }

  void collect(const OnnxNode& node, Product& product) const {
    const bool divides = node.op == "Div";
    for (std::size_t i = 0; i < 2; ++i) {
      const auto number = scalar(node.input(i));
      if (number && !(divides && i == 0)) {
        product.factor *= divides ? 1 / *number : *number;
      } else if (divides && (i == 1 || number)) {
        product.values.insert(product.values.end(), 3, "");  // no product of this kind
      } else {
        collect(node.input(i), product);
      }
    }
  }

  // x of clip(x + 3, 0, 6), else "".
  std::string shifted_relu6(const std::string& value) const {
    const OnnxNode* clip = inner(value, "Clip");
    if (clip == nullptr) return "";
    const auto [lo, hi] = bounds(*clip);
    if (!lo || *lo != 0 || !hi || *hi != 6) return "";
    const OnnxNode* add = inner(clip->input(0), "Add");
    return add == nullptr ? "" : beside_scalar(*add, 3);
  }

  std::pair<std::optional<double>, std::optional<double>> bounds(const OnnxNode& clip) const {
    const auto bound = [&](const char* name, std::size_t i) -> std::optional<double> {
      if (clip.has(name)) return clip.real(name, 0);
      return scalar(clip.input(i));
    };
    return {bound("min", 1), bound("max", 2)};
  }

  // x of 1 + Erf(x / sqrt(2)), else "".
  std::string shifted_erf(const std::string& value) const {
    const OnnxNode* add = inner(value, "Add");
    const OnnxNode* erf = add == nullptr ? nullptr : inner(beside_scalar(*add, 1), "Erf");
    if (erf == nullptr) return "";
    Product product;
    collect(erf->input(0), product);
    return product.values.size() == 1 && near(product.factor, 1 / std::numbers::sqrt2)
               ? product.values[0]
               : "";
  }

  // x of 1 + Tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), else "".
  std::string shifted_tanh(const std::string& value) const {
    const OnnxNode* add = inner(value, "Add");
    const OnnxNode* tanh = add == nullptr ? nullptr : inner(beside_scalar(*add, 1), "Tanh");
    if (tanh == nullptr) return "";
    Product argument;
    collect(tanh->input(0), argument);
    const double factor = std::sqrt(2 / std::numbers::pi);
    if (argument.values.size() != 1 || !near(argument.factor, factor)) return "";
    const OnnxNode* sum = inner(argument.values[0], "Add");
    if (sum == nullptr) return "";
    for (std::size_t i = 0; i < 2; ++i) {
      if (is_cube_of(sum->input(1 - i), sum->input(i), 0.044715)) return sum->input(i);
    }
    return "";
  }

  // factor * x * x * x, however it was written.
  bool is_cube_of(const std::string& value, const std::string& x, double factor) const {
    Product product;
    collect(value, product);
    double exponent = 0;
    for (const std::string& one : product.values) {
      const OnnxNode* pow = inner(one, "Pow");
      const std::string base = pow == nullptr ? one : pow->input(0);
      if (base != x) return false;
      exponent += pow == nullptr ? 1 : scalar(pow->input(1)).value_or(0);
    }
    return exponent == 3 && near(product.factor, factor);
  }

  bool is_gate_of(const std::string& gate, const std::string& x, const char* op) const {
    const OnnxNode* node = inner(gate, op);
    if (node == nullptr || node->input(0) != x) return false;
    if (node->op != std::string("HardSigmoid")) return true;
    return near(node->real("alpha", 0.2F), 1.0 / 6) && near(node->real("beta", 0.5F), 0.5);
  }

  std::optional<OnnxNode> activation(const Product& product) const {
    const auto of = [](const char* op, const std::string& x, const char* domain) {
      return OnnxNode{.name = "", .op = op, .domain = domain, .inputs = {x}, .outputs = {}};
    };
    const auto& values = product.values;
    if (values.size() == 1 && near(product.factor, 1.0 / 6)) {
      const std::string x = shifted_relu6(values[0]);
      if (x.empty()) return std::nullopt;
      OnnxNode gate = of("HardSigmoid", x, "");
      gate.attributes = {{"alpha", 1.0F / 6}, {"beta", 0.5F}};
      return gate;
    }
    if (values.size() != 2) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string &x = values[i], &gate = values[1 - i];
      if (x.empty() || gate.empty()) continue;
      if (near(product.factor, 1.0 / 6) && shifted_relu6(gate) == x) return of("HardSwish", x, "");
      if (near(product.factor, 0.5) && shifted_erf(gate) == x) return of("GELU", x, kOwnDomain);
      if (near(product.factor, 0.5) && shifted_tanh(gate) == x) {
        OnnxNode gelu = of("GELU", x, kOwnDomain);
        gelu.attributes = {{"approximate", std::string("tanh")}};
        return gelu;
      }
      if (product.factor != 1) continue;
      if (is_gate_of(gate, x, "HardSigmoid")) return of("HardSwish", x, "");
      if (is_gate_of(gate, x, "Sigmoid")) return of("SiLU", x, kOwnDomain);
    }
    return std::nullopt;
  }

  // 0 where y is 0, else x / y.
  std::optional<OnnxNode> quotient_or_zero(const OnnxNode& where) const {
    const OnnxNode* equal = inner(where.input(0), "Equal");
    const OnnxNode* div = inner(where.input(2), "Div");
    if (equal == nullptr || div == nullptr || scalar(where.input(1)) != 0.0) return std::nullopt;
    if (beside_scalar(*equal, 0) != div->input(1)) return std::nullopt;
    return OnnxNode{.name = "",
                    .op = "DivNoNan",
                    .domain = kOwnDomain,
                    .inputs = {div->input(0), div->input(1)},
                    .outputs = {}};
  }

  // Of the last dimension, which stays.
  const OnnxNode* last_mean(const std::string& value) const {
    const OnnxNode* mean = maker(value, "ReduceMean");
    if (mean == nullptr || mean->integer("keepdims", 1) != 1) return nullptr;
    std::vector<std::int64_t> axes = mean->integers("axes");
    if (const Constant* given = constant(mean->input(1)); given != nullptr && axes.empty()) {
      for (const Extent& e : given->integers) axes.push_back(e.value);
    }
    return axes == std::vector<std::int64_t>{-1} ? mean : nullptr;
  }

  // x of x - mean(x), else "".
  std::string centred(const std::string& value) const {
    const OnnxNode* sub = maker(value, "Sub");
    const OnnxNode* mean = sub == nullptr ? nullptr : last_mean(sub->input(1));
    return mean != nullptr && mean->input(0) == sub->input(0) ? sub->input(0) : "";
  }

  // The value that is squared, else "".
  std::string squared(const std::string& value) const {
    if (const OnnxNode* pow = maker(value, "Pow")) {
      const auto exponent = scalar(pow->input(1));
      return exponent && *exponent == 2 ? pow->input(0) : "";
    }
    const OnnxNode* mul = maker(value, "Mul");
    return mul != nullptr && mul->input(0) == mul->input(1) ? mul->input(0) : "";
  }

  // One number for each feature beside a value.
  struct Features {
    std::string values;
    std::string other;
  };
  std::optional<Features> features(const OnnxNode& node) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const Constant* c = constant(node.input(i));
      if (c != nullptr && c->floating && c->shape.size() == 1) {
        return Features{node.input(i), node.input(1 - i)};
      }
    }
    return std::nullopt;
  }

  std::optional<OnnxNode> layer_norm(const OnnxNode& add) const {
    const auto beta = features(add);
    const OnnxNode* mul = beta ? inner(beta->other, "Mul") : nullptr;
    const auto gamma = mul != nullptr ? features(*mul) : std::nullopt;
    const OnnxNode* div = gamma ? inner(gamma->other, "Div") : nullptr;
    const OnnxNode* root = div != nullptr ? inner(div->input(1), "Sqrt") : nullptr;
    const OnnxNode* shifted = root != nullptr ? inner(root->input(0), "Add") : nullptr;
    if (shifted == nullptr) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto eps = scalar(shifted->input(i));
      const OnnxNode* variance = eps ? last_mean(shifted->input(1 - i)) : nullptr;
      if (variance == nullptr) continue;
      const std::string x = centred(div->input(0));
      if (x.empty() || centred(squared(variance->input(0))) != x) continue;
      return OnnxNode{.name = "",
                      .op = "LayerNormalization",
                      .inputs = {x, gamma->values, beta->values},
                      .outputs = {},
                      .attributes = {{"epsilon", static_cast<float>(*eps)}}};
    }
    return std::nullopt;
  }

  // --- layers and their bias

  std::string add_constant(const std::string& base, Constant value) {
    std::string name = base + "#";
    while (model_.initializers.contains(name) || maker_.contains(name)) name += '#';
    model_.initializers.emplace(name, std::move(value));
    return name;
  }

  void recognise_layer(std::size_t i) {
    OnnxNode& node = model_.nodes[i];
    if (!node.domain.empty()) return;
    if (node.op == "MatMul") return matmul_to_linear(node);
    if (node.op == "Gemm") return gemm_to_linear(node);
    if (node.op == "Add") take_bias(i);
    if (node.op == "Mul") take_factor(i, /*divides=*/false);
    if (node.op == "Div") take_factor(i, /*divides=*/true);
  }

  void matmul_to_linear(OnnxNode& node) {
    const Constant* weight = constant(node.input(1));
    if (weight == nullptr || !weight->floating || weight->shape.size() != 2) return;
    const std::string name = add_constant(node.input(1), transposed(*weight, {1, 0}));
    node.op = "Linear";
    node.domain = kOwnDomain;
    node.inputs = {node.input(0), name};
  }

  void gemm_to_linear(OnnxNode& node) {
    const Constant* weight = constant(node.input(1));
    const std::string third = node.input(2);
    const Constant* bias = constant(third);
    if (weight == nullptr || !weight->floating || weight->shape.size() != 2) return;
    if (node.integer("transA", 0) != 0 || (!third.empty() && bias == nullptr)) return;
    Constant linear = node.integer("transB", 0) != 0 ? *weight : transposed(*weight, {1, 0});
    const float alpha = node.real("alpha", 1), beta = node.real("beta", 1);
    if (bias != nullptr && (!bias->floating || !is_row(*bias, linear.shape[0]))) return;
    for (float& v : linear.reals) v *= alpha;
    const std::int64_t outputs = linear.shape[0];
    std::vector<std::string> inputs{node.input(0), add_constant(node.input(1), std::move(linear))};
    if (bias != nullptr) {
      Constant row = as_row(*bias, outputs);
      for (float& v : row.reals) v *= beta;
      inputs.push_back(add_constant(third, std::move(row)));
    }
    node.op = "Linear";
    node.domain = kOwnDomain;
    node.inputs = std::move(inputs);
    node.attributes.clear();
  }

  // Values of the last dimension, or one for all of it.
  static bool is_row(const Constant& c, std::int64_t width) {
    const bool leads_ones = c.shape.empty() || c.size() == c.shape.back();
    return leads_ones && c.shape.size() <= 2 && (c.size() == width || c.size() == 1);
  }
  static Constant as_row(const Constant& c, std::int64_t width) {
    Constant row{.shape = {width}, .floating = true, .reals = c.reals};
    if (c.size() == 1) row.reals.assign(static_cast<std::size_t>(width), c.reals[0]);
    return row;
  }

  // Of channels, which are dimension 1 of images or rows of `rank` dimensions: [1, C, 1, 1],
  // [C, 1, 1].
  static bool is_of_channels(const Constant& c, std::int64_t channels, std::size_t rank) {
    if (c.size() != channels || c.shape.size() + 1 < rank || c.shape.size() > rank) return false;
    return c.shape[c.shape.size() + 1 - rank] == channels;
  }

  // A linear map with constant weights of which node i alone reads the output.
  struct Layer {
    OnnxNode node;
    std::int64_t outputs = 0;
    std::size_t rank = 0;  // of the weight
  };
  std::optional<Layer> layer_before(const std::string& output) const {
    for (const char* op : {"Linear", "Conv", "ConvTranspose"}) {
      const OnnxNode* layer = inner(output, op);
      if (layer == nullptr || layer->inputs.size() > 3) continue;
      const Constant* weight = constant(layer->input(1));
      const std::string bias = layer->input(2);
      if (weight == nullptr || !weight->floating || weight->shape.size() < 2) continue;
      const bool transposed = op == std::string("ConvTranspose");
      const std::int64_t outputs =
          transposed ? weight->shape[1] * layer->integer("group", 1) : weight->shape[0];
      const Constant* own = constant(bias);
      if (!bias.empty() && (own == nullptr || !own->floating || own->size() != outputs)) continue;
      if (outputs < 1 || weight->size() % outputs != 0) continue;
      return Layer{*layer, outputs, weight->shape.size()};
    }
    return std::nullopt;
  }

  // A number for each output of the layer, from one for each or one for all.
  static std::optional<Constant> of_outputs(const Constant& value, const Layer& layer) {
    if (!value.floating || value.shape.size() > layer.rank) return std::nullopt;
    const bool fits = layer.node.op == "Linear"
                          ? is_row(value, layer.outputs)
                          : value.size() == 1 || is_of_channels(value, layer.outputs, layer.rank);
    return fits ? std::optional(as_row(value, layer.outputs)) : std::nullopt;
  }

  // The layer in place of node i, under its own name.
  void replace_by(std::size_t i, const Layer& layer) {
    replace(i, layer.node);
    model_.nodes[i].name = layer.node.name;
  }

  void take_bias(std::size_t i) {
    for (std::size_t k = 0; k < 2; ++k) {
      const std::string name = model_.nodes[i].input(k);
      const Constant* value = constant(name);
      auto layer = value == nullptr ? std::nullopt : layer_before(model_.nodes[i].input(1 - k));
      auto bias = layer ? of_outputs(*value, *layer) : std::nullopt;
      if (!bias) continue;
      if (const Constant* own = constant(layer->node.input(2))) {
        std::transform(own->reals.begin(), own->reals.end(), bias->reals.begin(),
                       bias->reals.begin(), std::plus<>());
      }
      layer->node.inputs.resize(3);
      layer->node.inputs[2] = add_constant(name, std::move(*bias));
      return replace_by(i, *layer);
    }
  }

  // A factor of each output, which the weights take.
  void take_factor(std::size_t i, bool divides) {
    for (std::size_t k = divides ? 1 : 0; k < 2; ++k) {
      const std::string name = model_.nodes[i].input(k);
      const Constant* value = constant(name);
      auto layer = value == nullptr ? std::nullopt : layer_before(model_.nodes[i].input(1 - k));
      if (!layer || layer->node.op == "ConvTranspose") continue;
      auto factor = of_outputs(*value, *layer);
      if (!factor) continue;
      const auto scaled = [&](const std::string& of) {
        Constant weight = *constant(of);
        const auto each = static_cast<std::size_t>(weight.size() / layer->outputs);
        for (std::size_t at = 0; at < weight.reals.size(); ++at) {
          const float by = factor->reals[at / each];
          weight.reals[at] = divides ? weight.reals[at] / by : weight.reals[at] * by;
        }
        return add_constant(of, std::move(weight));
      };
      layer->node.inputs[1] = scaled(layer->node.input(1));
      if (!layer->node.input(2).empty()) layer->node.inputs[2] = scaled(layer->node.input(2));
      return replace_by(i, *layer);
    }
  }

  OnnxModel model_;
  std::vector<std::string> outputs_;
  std::map<std::string, std::size_t> maker_;
  std::map<std::string, int> readers_;
};

}  // namespace

SimplifiedModel simplify(OnnxModel model) { return Simplifier(std::move(model)).run(); }

}  // namespace steelyard::imports
