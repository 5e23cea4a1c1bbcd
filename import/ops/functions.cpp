// Functions of each element that are modules, or are composed of some.
#include <cmath>

#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/where.h"

namespace steelyard::imports {
namespace {

template <const char* const& type>
void function(Translator& t) {
  t.give_as(0, t.add(type, {t.as_held(0)}), t.input(0).shape);
}
constexpr const char *kSin = "Sin", *kCos = "Cos", *kSoftplus = "Softplus", *kSign = "Sign",
                     *kFloor = "Floor", *kCeil = "Ceil", *kRound = "Round", *kGelu = "GELU";

// Declares the output that `compute` gives for the node that holds input 0.
template <typename F>
void composed(Translator& t, const F& compute) {
  const std::string x = t.as_held(0);
  t.give_as(0, compute(x), t.input(0).shape);
}

std::string elu_of(Translator& t, const std::string& x, double alpha) {
  return t.add("Elu", {x}, EluOptions{alpha});
}

void elu(Translator& t) {
  composed(t, [&](const std::string& x) { return elu_of(t, x, t.node().real("alpha", 1)); });
}

// max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).
void celu(Translator& t) {
  const float alpha = t.node().real("alpha", 1);
  if (!(alpha > 0)) refuse("alpha: expected more than 0");
  composed(t, [&](const std::string& x) {
    if (alpha == 1) return elu_of(t, x, 1);
    const std::string bent = elu_of(t, with_number(t, "DivConstant", x, alpha), 1);
    return with_number(t, "MulConstant", bent, alpha);
  });
}

// gamma * Elu(x).
void selu(Translator& t) {
  composed(t, [&](const std::string& x) {
    const std::string bent = elu_of(t, x, t.node().real("alpha", 1.67326319F));
    return with_number(t, "MulConstant", bent, t.node().real("gamma", 1.05070102F));
  });
}

// x / (1 + |x|).
void softsign(Translator& t) {
  composed(t, [&](const std::string& x) {
    return t.add("Div", {x, with_number(t, "AddConstant", t.add("Abs", {x}), 1)});
  });
}

// x * tanh(softplus(x)).
void mish(Translator& t) {
  composed(t, [&](const std::string& x) {
    return t.add("Mul", {x, t.add("Tanh", {t.add("Softplus", {x})})});
  });
}

// -softplus(-x).
void log_sigmoid(Translator& t) {
  composed(t, [&](const std::string& x) {
    const std::string negative = with_number(t, "MulConstant", x, -1);
    return with_number(t, "MulConstant", t.add("Softplus", {negative}), -1);
  });
}

// x where x > alpha, else 0.
void thresholded_relu(Translator& t) {
  const float alpha = t.node().real("alpha", 1);
  composed(t, [&](const std::string& x) {
    const Shape number;
    const std::string y = t.add("WhereGreater", {x, x}, WhereOptions{.y = number, .b = number});
    t.set_weight(y, "y", {.shape = {}, .floating = true, .reals = {alpha}});
    t.set_weight(y, "b", {.shape = {}, .floating = true, .reals = {0}});
    return y;
  });
}

// x * sigmoid(alpha * x).
void swish_of(Translator& t, float alpha) {
  composed(t, [&](const std::string& x) {
    if (alpha == 1) return t.add("SiLU", {x});
    return t.add("Mul", {x, t.add("Sigmoid", {with_number(t, "MulConstant", x, alpha)})});
  });
}
void swish(Translator& t) { swish_of(t, t.node().real("alpha", 1)); }
void quick_gelu(Translator& t) { swish_of(t, t.node().real("alpha", 1.702F)); }

// TanhGELU of x and a bias of the last dimension.
void fast_gelu(Translator& t) {
  const Constant* bias = t.optional_constant(1, "bias");
  const ExtentShape shape = t.input(0).shape;
  std::string x = bias == nullptr ? t.as_held(0) : t.rows(0);
  if (bias != nullptr) x = with_features(t, "AddConstant", x, *bias);
  x = t.add("TanhGELU", {x});
  if (bias == nullptr) return t.give_as(0, x, shape);
  t.give_rows_of(0, x, shape);
}

}  // namespace

std::string with_number(Translator& t, const char* type, const std::string& node, float value) {
  const std::string module = t.add(type, {node}, StoredConstant{});
  t.set_weight(module, "value", {.shape = {}, .floating = true, .reals = {value}});
  return module;
}

std::string with_features(Translator& t, const char* type, const std::string& node,
                          const Constant& value) {
  const Shape shape{value.size()};
  const std::string module = t.add(type, {node}, StoredConstant{shape, /*trainable=*/true});
  t.set_weight(module, "value", value, shape);
  return module;
}

std::vector<OperationRow> function_operations() {
  return {
      {"Sin", function<kSin>},
      {"Cos", function<kCos>},
      {"Softplus", function<kSoftplus>},
      {"Sign", function<kSign>},
      {"Floor", function<kFloor>},
      {"Ceil", function<kCeil>},
      {"Round", function<kRound>},
      {"Elu", elu},
      {"Celu", celu},
      {"Selu", selu},
      {"Softsign", softsign},
      {"Mish", mish},
      {"LogSigmoid", log_sigmoid, "", kOwnDomain},
      {"ThresholdedRelu", thresholded_relu},
      {"Swish", swish},
      {"Gelu", function<kGelu>, "", kContribDomain},
      {"FastGelu", fast_gelu, "", kContribDomain},
      {"QuickGelu", quick_gelu, "", kContribDomain},
  };
}

}  // namespace steelyard::imports
