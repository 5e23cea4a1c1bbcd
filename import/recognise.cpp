#include "steelyard/import/recognise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "steelyard/import/window_padding.h"

namespace steelyard::imports {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

// A product of values and a factor, however it was written.
struct ScaledProduct {
  double factor = 1;
  std::vector<std::string> values = {};
  std::size_t depth = 0;
};

// One number for each feature of a value.
struct Features {
  std::string values;
  std::string other;
};

// The patterns that end in a node, which is the outermost.
class Patterns {
 public:
  explicit Patterns(const EditableGraph& graph) : graph_(graph) {}

  std::optional<OnnxNode> ending_in(const OnnxNode& node) {
    auto one = found_in(node);
    if (one && least_rank_ > 1) one->attributes[kLeastRank] = std::int64_t{least_rank_};
    return one;
  }

 private:
  std::optional<OnnxNode> found_in(const OnnxNode& node) {
    if (!node.domain.empty()) return std::nullopt;
    if (node.op == "Mul" || node.op == "Div") {
      ScaledProduct product;
      collect(node, product);
      return activation(product);
    }
    if (node.op == "Add") return layer_norm(node);
    if (node.op == "Where") return quotient_or_zero(node);
    if (node.op == "Log") return log_sigmoid(node);
    const OnnxNode* pad = graph_.inner(node.input(0), "Pad");
    return pad == nullptr ? std::nullopt : with_padding(node, *pad, graph_.model.initializers);
  }

  // The only number of a constant. Its dimensions are ones that the pattern's values must have.
  std::optional<double> number(const std::string& name) {
    const auto only = graph_.scalar(name);
    if (only) least_rank_ = std::max(least_rank_, std::ssize(graph_.constant(name)->shape));
    return only;
  }

  // The operand of a commutative node that is not the constant scalar; "" where none is.
  std::string beside_scalar(const OnnxNode& node, double value) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto given = number(node.input(i));
      if (given && near(*given, value)) return node.input(1 - i);
    }
    return "";
  }

  void collect(const std::string& value, ScaledProduct& product) {
    constexpr std::size_t kMostFactors = 8;  // of those that are recognised
    const OnnxNode* node = graph_.inner(value, "Mul");
    if (node == nullptr) node = graph_.inner(value, "Div");
    if (node == nullptr || !node->domain.empty() || ++product.depth > kMostFactors) {
      product.values.push_back(value);
    } else {
      collect(*node, product);
    }
  }

  void collect(const OnnxNode& node, ScaledProduct& product) {
    const bool divides = node.op == "Div";
    for (std::size_t i = 0; i < 2; ++i) {
      const auto given = number(node.input(i));
      if (given && !(divides && i == 0)) {
        product.factor *= divides ? 1 / *given : *given;
      } else if (divides && (i == 1 || given)) {
        product.values.insert(product.values.end(), 3, "");  // no product of this kind
      } else {
        collect(node.input(i), product);
      }
    }
  }

  // x of clip(x + 3, 0, 6), else "".
  std::string shifted_relu6(const std::string& value) {
    const OnnxNode* clip = graph_.inner(value, "Clip");
    if (clip == nullptr) return "";
    const auto [lo, hi] = bounds(*clip);
    if (!lo || *lo != 0 || !hi || *hi != 6) return "";
    const OnnxNode* add = graph_.inner(clip->input(0), "Add");
    return add == nullptr ? "" : beside_scalar(*add, 3);
  }

  std::pair<std::optional<double>, std::optional<double>> bounds(const OnnxNode& clip) {
    const auto bound = [&](const char* name, std::size_t i) -> std::optional<double> {
      if (clip.has(name)) return clip.real(name, 0);
      return number(clip.input(i));
    };
    return {bound("min", 1), bound("max", 2)};
  }

  // x of 1 + Erf(x / sqrt(2)), else "".
  std::string shifted_erf(const std::string& value) {
    const OnnxNode* add = graph_.inner(value, "Add");
    const OnnxNode* erf = add == nullptr ? nullptr : graph_.inner(beside_scalar(*add, 1), "Erf");
    if (erf == nullptr) return "";
    ScaledProduct product;
    collect(erf->input(0), product);
    return product.values.size() == 1 && near(product.factor, 1 / std::numbers::sqrt2)
               ? product.values[0]
               : "";
  }

  // x of 1 + Tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), else "".
  std::string shifted_tanh(const std::string& value) {
    const OnnxNode* add = graph_.inner(value, "Add");
    const OnnxNode* tanh = add == nullptr ? nullptr : graph_.inner(beside_scalar(*add, 1), "Tanh");
    if (tanh == nullptr) return "";
    ScaledProduct argument;
    collect(tanh->input(0), argument);
    const double factor = std::sqrt(2 / std::numbers::pi);
    if (argument.values.size() != 1 || !near(argument.factor, factor)) return "";
    const OnnxNode* sum = graph_.inner(argument.values[0], "Add");
    if (sum == nullptr) return "";
    for (std::size_t i = 0; i < 2; ++i) {
      if (is_cube_of(sum->input(1 - i), sum->input(i), 0.044715)) return sum->input(i);
    }
    return "";
  }

  // factor * x * x * x, however it was written.
  bool is_cube_of(const std::string& value, const std::string& x, double factor) {
    ScaledProduct product;
    collect(value, product);
    double exponent = 0;
    for (const std::string& one : product.values) {
      const OnnxNode* pow = graph_.inner(one, "Pow");
      const std::string base = pow == nullptr ? one : pow->input(0);
      if (base != x) return false;
      exponent += pow == nullptr ? 1 : number(pow->input(1)).value_or(0);
    }
    return exponent == 3 && near(product.factor, factor);
  }

  bool is_gate_of(const std::string& gate, const std::string& x, const char* op) const {
    const OnnxNode* node = graph_.inner(gate, op);
    if (node == nullptr || node->input(0) != x) return false;
    if (node->op != std::string("HardSigmoid")) return true;
    return near(node->real("alpha", 0.2F), 1.0 / 6) && near(node->real("beta", 0.5F), 0.5);
  }

  static OnnxNode of(const char* op, const std::string& x, const char* domain) {
    return {.name = "", .op = op, .domain = domain, .inputs = {x}, .outputs = {}};
  }

  // The sigmoid of numbers below about -88 is 0 in float32, the logarithm of it the number itself.
  std::optional<OnnxNode> log_sigmoid(const OnnxNode& log) const {
    const OnnxNode* sigmoid = graph_.inner(log.input(0), "Sigmoid");
    if (sigmoid == nullptr) return std::nullopt;
    return of("LogSigmoid", sigmoid->input(0), kOwnDomain);
  }

  std::optional<OnnxNode> activation(const ScaledProduct& product) {
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
  std::optional<OnnxNode> quotient_or_zero(const OnnxNode& where) {
    const OnnxNode* equal = graph_.inner(where.input(0), "Equal");
    const OnnxNode* div = graph_.inner(where.input(2), "Div");
    if (equal == nullptr || div == nullptr || number(where.input(1)) != 0.0) return std::nullopt;
    if (beside_scalar(*equal, 0) != div->input(1)) return std::nullopt;
    return OnnxNode{.name = "",
                    .op = "DivNoNan",
                    .domain = kOwnDomain,
                    .inputs = {div->input(0), div->input(1)},
                    .outputs = {}};
  }

  // The node whose output `value` is the mean over the last dimension, which stays with size 1;
  // else null.
  const OnnxNode* last_mean(const std::string& value) const {
    const OnnxNode* mean = graph_.maker(value, "ReduceMean");
    if (mean == nullptr || mean->integer("keepdims", 1) != 1) return nullptr;
    std::vector<std::int64_t> axes = mean->integers("axes");
    if (const Constant* given = graph_.constant(mean->input(1)); given != nullptr && axes.empty()) {
      for (const Extent& e : given->integers) axes.push_back(e.value);
    }
    return axes == std::vector<std::int64_t>{-1} ? mean : nullptr;
  }

  // x of x - mean(x), else "".
  std::string centred(const std::string& value) {
    const OnnxNode* sub = graph_.maker(value, "Sub");
    const OnnxNode* mean = sub == nullptr ? nullptr : last_mean(sub->input(1));
    return mean != nullptr && mean->input(0) == sub->input(0) ? sub->input(0) : "";
  }

  // The value that is squared, else "".
  std::string squared(const std::string& value) {
    if (const OnnxNode* pow = graph_.maker(value, "Pow")) {
      const auto exponent = number(pow->input(1));
      return exponent && *exponent == 2 ? pow->input(0) : "";
    }
    const OnnxNode* mul = graph_.maker(value, "Mul");
    return mul != nullptr && mul->input(0) == mul->input(1) ? mul->input(0) : "";
  }

  std::optional<Features> features(const OnnxNode& node) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const Constant* c = graph_.constant(node.input(i));
      if (c != nullptr && c->floating && c->shape.size() == 1 && c->size() > 1) {
        return Features{node.input(i), node.input(1 - i)};
      }
    }
    return std::nullopt;
  }

  std::optional<OnnxNode> layer_norm(const OnnxNode& add) {
    const auto beta = features(add);
    const OnnxNode* mul = beta ? graph_.inner(beta->other, "Mul") : nullptr;
    const auto gamma = mul != nullptr ? features(*mul) : std::nullopt;
    const OnnxNode* div = gamma ? graph_.inner(gamma->other, "Div") : nullptr;
    const OnnxNode* root = div != nullptr ? graph_.inner(div->input(1), "Sqrt") : nullptr;
    const OnnxNode* shifted = root != nullptr ? graph_.inner(root->input(0), "Add") : nullptr;
    if (shifted == nullptr) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto eps = number(shifted->input(i));
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

  const EditableGraph& graph_;
  std::ptrdiff_t least_rank_ = 0;
};

}  // namespace

std::optional<OnnxNode> recognised(const EditableGraph& graph, const OnnxNode& node) {
  return Patterns(graph).ending_in(node);
}

}  // namespace steelyard::imports
