// What exporters spell out in operations on values whose shapes have to be known: Softmax and
// LayerNorm. (Patterns that need no shapes are recognised in import/graph/simplify.cpp.) Nodes
// before the last one are translated too; nobody reads them then.
#include <cmath>

#include "steelyard/import/translator.h"
#include "steelyard/layers/norms/layer_norm.h"

namespace steelyard::imports {
namespace {

class Pattern {
 public:
  explicit Pattern(Translator& t) : t_(t) {}

  // The node that makes the value, if its operation is `op`.
  const OnnxNode* made_by(const std::string& value, const char* op) const {
    const OnnxNode* node = t_.maker(value);
    return node != nullptr && node->op == op && node->domain.empty() && node->outputs[0] == value
               ? node
               : nullptr;
  }

  std::optional<double> number(const std::string& name) const {
    const Constant* constant = t_.constant_called(name);
    return constant == nullptr || !constant->floating ? std::nullopt : scalar_of(*constant);
  }

  // The computed operand of a node of two whose other one is a number.
  struct Scaled {
    std::string value;
    double number = 0;
  };
  std::optional<Scaled> beside_number(const OnnxNode* node) const {
    if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto factor = number(node->input(i));
      const ImportedValue* other = t_.value(node->input(1 - i));
      if (!factor || other == nullptr) continue;
      if (t_.constant_called(node->input(i))->shape.size() > other->rank()) return std::nullopt;
      return Scaled{node->input(1 - i), *factor};
    }
    return std::nullopt;
  }

  // A value without what only writes it under another shape in front of a broadcast: `kept` is the
  // shape with 1 for what was reduced. "" where the shapes say something else.
  std::string unspread(std::string name, const ExtentShape& kept) const {
    bool fits = false;
    for (const OnnxNode* node = t_.maker(name); node != nullptr; node = t_.maker(name)) {
      const ImportedValue* value = t_.value(name);
      if (value == nullptr || !node->domain.empty()) return "";
      fits = fits || value->shape == kept;
      const bool repeats = node->op == "Expand";
      const bool moves = node->op == "Reshape" || node->op == "Unsqueeze" || node->op == "Squeeze";
      if (!repeats && !moves) break;
      const ImportedValue* before = t_.value(node->input(0));
      if (before == nullptr || (repeats ? before->shape != kept : !fits)) return "";
      name = node->input(0);
    }
    const ImportedValue* value = t_.value(name);
    return fits || (value != nullptr && value->shape == kept) ? name : "";
  }

  // The one dimension that a reduction drops or keeps as 1.
  std::optional<std::size_t> reduced_axis(const OnnxNode& node) const {
    std::vector<std::int64_t> axes = node.integers("axes");
    if (!node.has("axes")) {
      const Constant* given = t_.constant_called(node.input(1));
      if (given == nullptr) return std::nullopt;
      axes = integers_of(*given, "axes");
    }
    const ImportedValue* of = t_.value(node.input(0));
    if (of == nullptr || axes.size() != 1) return std::nullopt;
    return axis_of(axes[0], of->rank());
  }

  // x where `name` is its mean over one dimension, or its sum by another name times 1 / size.
  struct Mean {
    std::string of;
    std::size_t axis = 0;
  };
  std::optional<Mean> mean(const std::string& name) const {
    const OnnxNode* reduction = made_by(name, "ReduceMean");
    double factor = 0;
    if (reduction == nullptr) {
      const OnnxNode* mul = made_by(name, "Mul");
      const OnnxNode* div = made_by(name, "Div");
      const auto scaled = beside_number(mul != nullptr ? mul : div);
      if (!scaled || (div != nullptr && number(div->input(0)))) return std::nullopt;
      factor = mul != nullptr ? scaled->number : 1 / scaled->number;
      reduction = made_by(scaled->value, "ReduceSum");
      if (reduction == nullptr) return std::nullopt;
    }
    const auto axis = reduced_axis(*reduction);
    if (!axis) return std::nullopt;
    const Extent size = t_.value(reduction->input(0))->shape[*axis];
    if (size.of_batch) return std::nullopt;
    if (factor != 0 && std::abs(factor * static_cast<double>(size.value) - 1) > 1e-6) {
      return std::nullopt;
    }
    return Mean{reduction->input(0), *axis};
  }

  // x of x * x.
  std::string squared(const std::string& name) const {
    if (const OnnxNode* mul = made_by(name, "Mul")) {
      return mul->input(0) == mul->input(1) ? mul->input(0) : "";
    }
    const OnnxNode* pow = made_by(name, "Pow");
    return pow != nullptr && number(pow->input(1)) == 2.0 ? pow->input(0) : "";
  }

  // Without a bound of 0 below, which a variance has anyway, or of -infinity.
  std::string unbounded(const std::string& name, double bound) const {
    const auto above = beside_number(made_by(name, "Max"));
    return above && above->number == bound ? above->value : name;
  }

 protected:
  Translator& t_;
};

// shape with 1 at the axis.
ExtentShape with_one(ExtentShape shape, std::size_t axis) {
  shape[axis] = {1};
  return shape;
}

// Exp(x - max(x)) / sum of the same over the last dimension; the maximum may be missing.
class SoftmaxPattern : public Pattern {
 public:
  using Pattern::Pattern;

  // x, else "".
  std::string of(const OnnxNode& div) const {
    const std::string shares = div.input(0);
    const OnnxNode* exp = made_by(shares, "Exp");
    if (exp == nullptr || t_.value(shares) == nullptr) return "";
    const ExtentShape& shape = t_.value(shares)->shape;
    if (shape.size() < 2) return "";
    const std::size_t axis = shape.size() - 1;
    const ExtentShape kept = with_one(shape, axis);
    const OnnxNode* sum = made_by(unspread(div.input(1), kept), "ReduceSum");
    if (sum == nullptr || sum->input(0) != shares || reduced_axis(*sum) != axis) return "";
    const std::string argument = exp->input(0);
    const OnnxNode* sub = made_by(argument, "Sub");
    if (sub == nullptr) return argument;
    const std::string x = sub->input(0);
    const std::string largest = unspread(sub->input(1), kept);
    const OnnxNode* max = made_by(unbounded(largest, -HUGE_VAL), "ReduceMax");
    return max != nullptr && max->input(0) == x && reduced_axis(*max) == axis ? x : argument;
  }
};

// (x - mean) * (gamma / sqrt(max(mean of x^2 - mean^2, 0) + eps)) + beta, and
// (x - mean) / sqrt(mean of (x - mean)^2 + eps), by itself or times gamma plus beta.
class LayerNormPattern : public Pattern {
 public:
  using Pattern::Pattern;

  struct Found {
    std::string x;
    std::size_t axis = 0;
    const Constant *gamma = nullptr, *beta = nullptr;
    double eps = 0;
  };

  std::optional<Found> of(const OnnxNode& add) const {
    Found found;
    const OnnxNode* scaled = nullptr;
    for (std::size_t i = 0; i < 2; ++i) {
      if (const Constant* beta = t_.constant_called(add.input(i))) {
        found.beta = beta;
        scaled = made_by(add.input(1 - i), "Mul");
      }
    }
    if (scaled == nullptr) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      found.gamma = t_.constant_called(scaled->input(i));
      const OnnxNode* quotient = made_by(scaled->input(1 - i), "Div");
      if (found.gamma == nullptr || quotient == nullptr) continue;
      if (is_quotient(*quotient, found) && fit(found)) return found;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const OnnxNode* centred = made_by(scaled->input(i), "Sub");
      const OnnxNode* factor = made_by(scaled->input(1 - i), "Mul");
      if (centred == nullptr || factor == nullptr || t_.value(centred->input(0)) == nullptr)
        continue;
      found.x = centred->input(0);
      if (matches(*centred, *factor, found) && fit(found)) return found;
    }
    return std::nullopt;
  }

  // Without gamma and beta.
  std::optional<Found> of_quotient(const OnnxNode& div) const {
    Found found;
    if (!is_quotient(div, found) || !is_held_last(found)) return std::nullopt;
    return found;
  }

 private:
  // x of x - mean(x).
  std::optional<Mean> centred(const std::string& name) const {
    const OnnxNode* sub = made_by(name, "Sub");
    if (sub == nullptr || t_.value(sub->input(0)) == nullptr) return std::nullopt;
    const ExtentShape& shape = t_.value(sub->input(0))->shape;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) {
      const auto average = mean(unspread(sub->input(1), with_one(shape, axis)));
      if (average && average->of == sub->input(0) && average->axis == axis) return average;
    }
    return std::nullopt;
  }

  bool is_quotient(const OnnxNode& div, Found& found) const {
    const auto dividend = centred(div.input(0));
    if (!dividend) return false;
    const ExtentShape kept = with_one(t_.value(dividend->of)->shape, dividend->axis);
    const OnnxNode* root = made_by(unspread(div.input(1), kept), "Sqrt");
    const auto shifted =
        root == nullptr ? std::nullopt : beside_number(made_by(root->input(0), "Add"));
    const auto variance = shifted ? mean(unspread(shifted->value, kept)) : std::nullopt;
    if (!variance || variance->axis != dividend->axis) return false;
    const auto of_squares = centred(squared(variance->of));
    if (!of_squares || of_squares->of != dividend->of || of_squares->axis != dividend->axis) {
      return false;
    }
    found.x = dividend->of;
    found.axis = dividend->axis;
    found.eps = shifted->number;
    return found.eps > 0;
  }

  bool matches(const OnnxNode& centred, const OnnxNode& factor, Found& found) const {
    for (std::size_t i = 0; i < 2; ++i) {
      found.gamma = t_.constant_called(factor.input(i));
      const OnnxNode* inverse = made_by(factor.input(1 - i), "Reciprocal");
      const OnnxNode* root = inverse == nullptr ? nullptr : made_by(inverse->input(0), "Sqrt");
      const auto shifted =
          root == nullptr ? std::nullopt : beside_number(made_by(root->input(0), "Add"));
      if (found.gamma == nullptr || !shifted) continue;
      found.eps = shifted->number;
      if (is_variance(shifted->value, centred.input(1), found)) return true;
    }
    return false;
  }

  bool is_variance(const std::string& name, const std::string& subtracted, Found& found) const {
    const ExtentShape& shape = t_.value(found.x)->shape;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) {
      const ExtentShape kept = with_one(shape, axis);
      const std::string average = unspread(subtracted, kept);
      const OnnxNode* sub = made_by(unbounded(unspread(name, kept), 0), "Sub");
      const auto own = mean(average);
      if (sub == nullptr || !own || own->of != found.x || own->axis != axis) continue;
      const auto squares = mean(sub->input(0));
      if (!squares || squares->axis != axis || squared(squares->of) != found.x) continue;
      if (squared(sub->input(1)) != average) continue;
      found.axis = axis;
      return true;
    }
    return false;
  }

  bool is_held_last(const Found& found) const {
    const std::size_t rank = t_.value(found.x)->rank();
    return found.axis + 1 == rank || (found.axis == 1 && rank > 2);
  }

  // One number of gamma and beta for each position along the dimension, which can be the last one
  // of a held value.
  bool fit(const Found& found) const {
    const ExtentShape& shape = t_.value(found.x)->shape;
    const auto along = [&](const Constant& c) {
      const std::size_t from_end = shape.size() - found.axis;
      return c.floating && c.size() == shape[found.axis].value && c.shape.size() >= from_end &&
             c.shape.size() <= shape.size() &&
             c.shape[c.shape.size() - from_end] == shape[found.axis].value;
    };
    return is_held_last(found) && found.eps > 0 && along(*found.gamma) && along(*found.beta);
  }
};

}  // namespace

bool give_softmax(Translator& t) {
  if (t.node().inputs.size() != 2) return false;
  const std::string x = SoftmaxPattern(t).of(t.node());
  if (x.empty()) return false;
  const ExtentShape shape = t.value(x)->shape;
  t.give(t.add("Softmax", {t.node_of(x, false)}), shape, false);
  return true;
}

bool give_layer_norm(Translator& t) {
  if (t.node().inputs.size() != 2) return false;
  const LayerNormPattern pattern(t);
  const auto found = t.node().op == "Div" ? pattern.of_quotient(t.node()) : pattern.of(t.node());
  if (!found) return false;
  const ExtentShape shape = t.value(found->x)->shape;
  const bool last = found->axis + 1 != shape.size();
  const std::int64_t features = fixed(shape[found->axis]);
  const std::string module =
      t.add("LayerNorm", {t.node_of(found->x, last)}, LayerNormOptions{features, found->eps});
  const auto filled = [&](float number) {
    return Constant{.shape = {features},
                    .floating = true,
                    .reals = std::vector<float>(static_cast<std::size_t>(features), number)};
  };
  t.set_weight(module, "weight", found->gamma == nullptr ? filled(1) : *found->gamma, {features});
  t.set_weight(module, "bias", found->beta == nullptr ? filled(0) : *found->beta, {features});
  t.give(module, shape, last);
  return true;
}

}  // namespace steelyard::imports
