// Operations that compute each element by itself, and Softmax.
#include <cmath>
#include <limits>

#include "steelyard/import/translator.h"

namespace steelyard::imports {
namespace {

// One input, one output of its shape, however it is held.
void unary(Translator& t, const char* type, Options options = {}) {
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  t.give(t.add(type, {t.held(0, last)}, std::move(options)), shape, last);
}

void relu(Translator& t) { unary(t, "ReLU"); }
void sigmoid(Translator& t) { unary(t, "Sigmoid"); }
void hardswish(Translator& t) { unary(t, "Hardswish"); }
void silu(Translator& t) { unary(t, "SiLU"); }

void gelu(Translator& t) {
  const std::string how = t.node().text("approximate", "none");
  if (how != "none") refuse("approximate: " + how + " is not supported");
  unary(t, "GELU");
}

void hard_sigmoid(Translator& t) {
  unary(t, "HardSigmoid",
        {{"slope", double{t.node().real("alpha", 0.2F)}},
         {"offset", double{t.node().real("beta", 0.5F)}}});
}

void leaky_relu(Translator& t) {
  unary(t, "LeakyReLU", {{"slope", double{t.node().real("alpha", 0.01F)}}});
}

void prelu(Translator& t) {
  const Constant& slope = t.constant(1, "slope");
  const ExtentShape shape = t.input(0).shape;
  const std::int64_t channels = shape.size() > 1 ? fixed(shape[1]) : 1;
  const bool of_channels =
      slope.size() == channels && slope.shape.size() + 1 >= shape.size() && !slope.shape.empty() &&
      (slope.shape.size() == shape.size() ? slope.shape[1] : slope.shape[0]) == channels;
  if (slope.size() != 1 && !of_channels) refuse("its slope " + shape_string(slope.shape));
  const bool last = slope.size() != 1 ? shape.size() > 2 : t.input(0).channels_last;
  const std::string module =
      t.add_named(t.node().input(1), "PReLU", {t.held(0, last)}, {{"slopes", slope.size()}});
  t.set_weight(module, "weight", slope, {slope.size()});
  t.give(module, shape, last);
}

void clip(Translator& t) {
  const auto bound = [&](const char* name, std::size_t i, double otherwise) -> double {
    if (t.node().has(name)) return t.node().real(name, 0);
    const Constant* given = t.optional_constant(i, name);
    if (given == nullptr) return otherwise;
    const auto value = scalar_of(*given);
    if (!value) refuse(std::string(name) + ": expected one number");
    return *value;
  };
  constexpr double kNone = std::numeric_limits<double>::max();
  const double lo = bound("min", 1, -kNone), hi = bound("max", 2, kNone);
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  if (lo == 0 && hi == 6) return unary(t, "ReLU6");
  if (lo == 0 && hi >= kFloatMax) return unary(t, "ReLU");
  if (!(lo <= hi)) refuse("min is above max");
  unary(t, "Clamp", {{"lo", lo}, {"hi", hi}});
}

void cast(Translator& t) {
  const std::int64_t to = t.node().integer("to", 0);
  constexpr std::int64_t kFloat = 1;
  if (to != kFloat) refuse("of computed values to another type than float");
  t.give(t.input(0));
}

void identity(Translator& t) { t.give(t.input(0)); }

void softmax(Translator& t) {
  const Value& in = t.input(0);
  const ExtentShape shape = in.shape;
  const std::size_t axis = axis_of(t.node().integer("axis", t.opset() < 13 ? 1 : -1), shape.size());
  if (t.opset() < 13) {  // over all dimensions from the axis on
    for (std::size_t i = axis + 1; i < shape.size(); ++i) {
      if (shape[i] != Extent{1}) {
        if (axis + 1 != shape.size()) refuse("over several dimensions");
      }
    }
  }
  const bool over_channels = axis == 1 && shape.size() > 2;
  if (!over_channels && axis + 1 != shape.size()) {
    refuse("over dimension " + std::to_string(axis) + " of " + to_string(shape));
  }
  const bool last = over_channels && axis + 1 != shape.size();
  t.give(t.add("Softmax", {t.held(0, last)}), shape, last);
}

// --- arithmetic

ExtentShape extents(const Shape& shape) {
  ExtentShape result;
  for (const std::int64_t dim : shape) result.push_back({dim});
  return result;
}

void of_two(Translator& t, const char* type) {
  const ExtentShape a = t.input(0).shape, b = t.input(1).shape;
  const bool last = a.size() == b.size() && a.size() > 2 &&
                    (t.input(0).channels_last || t.input(1).channels_last);
  const std::string first = t.held(0, last);
  const std::string second = t.held(1, last);
  const bool is_add = type == std::string("Add");
  const std::string join = is_add && a != b ? "BroadcastAdd" : type;
  t.give(t.add(join, {first, second}), broadcast(a, b), last);
}

void with_constant(Translator& t, const std::string& type, std::size_t at) {
  const std::size_t of = 1 - at;
  const Constant& value = t.constant(at, "operand");
  if (!value.floating) refuse("of integers");
  const ExtentShape shape = t.input(of).shape;
  const ExtentShape result = broadcast(shape, extents(value.shape));
  if (result.size() > shape.size()) {
    refuse("its constant " + shape_string(value.shape) + " has more dimensions than " +
           to_string(shape));
  }
  const bool last = t.input(of).channels_last;
  Constant moved = value;
  if (value.size() == 1) {
    moved.shape = {};
  } else if (last) {
    moved.shape.insert(moved.shape.begin(), shape.size() - moved.shape.size(), 1);
    std::vector<std::int64_t> order;
    for (const std::size_t axis : held_order(shape.size(), true)) {
      order.push_back(static_cast<std::int64_t>(axis));
    }
    moved = transposed(moved, order);
  }
  const bool commutes = type == "Add" || type == "Mul";
  const std::string name = at == 0 && !commutes ? "Constant" + type : type + "Constant";
  const std::string module =
      t.add(name, {t.held(of, last)}, {{"shape", moved.shape}, {"trainable", moved.size() > 1}});
  t.set_weight(module, "value", moved);
  t.give(module, result, last);
}

void arithmetic(Translator& t, const char* type) {
  if (t.node().inputs.size() != 2) refuse("of other than two operands");
  if (t.input(0).known) return with_constant(t, type, 0);
  if (t.input(1).known) return with_constant(t, type, 1);
  of_two(t, type);
}

// A module of a value and a fixed number.
std::string with_number(Translator& t, const char* type, const std::string& node, float value) {
  const std::string module =
      t.add(type, {node}, {{"shape", std::vector<std::int64_t>{}}, {"trainable", false}});
  t.set_weight(module, "value", {.shape = {}, .floating = true, .reals = {value}});
  return module;
}

void of_number(Translator& t, const char* type, float value) {
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  t.give(with_number(t, type, t.held(0, last), value), shape, last);
}
void negative(Translator& t) { of_number(t, "MulConstant", -1); }
void reciprocal(Translator& t) { of_number(t, "ConstantDiv", 1); }

// 2 / (1 + exp(-2x)) - 1.
void tanh(Translator& t) {
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  const std::string twice = with_number(t, "MulConstant", t.held(0, last), 2);
  const std::string gate = with_number(t, "MulConstant", t.add("Sigmoid", {twice}), 2);
  t.give(with_number(t, "SubConstant", gate, 1), shape, last);
}

void power(Translator& t) {
  const auto exponent = scalar_of(t.constant(1, "exponent"));
  if (!exponent || (*exponent != 2 && *exponent != 3)) refuse("an exponent other than 2 or 3");
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  const std::string x = t.held(0, last);
  std::string node = t.add("Mul", {x, x});
  if (*exponent == 3) node = t.add("Mul", {node, x});
  t.give(node, shape, last);
}

// Of a value and a number.
void extreme(Translator& t, bool largest) {
  if (t.node().inputs.size() != 2) refuse("of other than a value and a number");
  const std::size_t at = t.input(0).known ? 0 : 1;
  const Value& number = t.input(at);
  const auto bound = number.known ? scalar_of(*number.known) : std::nullopt;
  if (!bound || number.known->shape.size() > t.input(1 - at).rank()) {
    refuse("of other than a value and a number");
  }
  const ExtentShape shape = t.input(1 - at).shape;
  const bool last = t.input(1 - at).channels_last;
  constexpr double kNone = std::numeric_limits<double>::max();
  t.give(t.add("Clamp", {t.held(1 - at, last)},
               {{"lo", largest ? *bound : -kNone}, {"hi", largest ? kNone : *bound}}),
         shape, last);
}
void largest(Translator& t) { extreme(t, true); }
void smallest(Translator& t) { extreme(t, false); }

// Of any number of values.
void sum(Translator& t) {
  ExtentShape shape = t.input(0).shape;
  const std::size_t count = t.node().inputs.size();
  bool last = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (t.input(i).known || t.input(i).shape != shape) refuse("of constants or different shapes");
    last = last || (shape.size() > 2 && t.input(i).channels_last);
  }
  std::string node = t.held(0, last);
  for (std::size_t i = 1; i < count; ++i) node = t.add("Add", {node, t.held(i, last)});
  t.give(node, shape, last);
}

void add(Translator& t) { arithmetic(t, "Add"); }
void sub(Translator& t) { arithmetic(t, "Sub"); }
void mul(Translator& t) { arithmetic(t, "Mul"); }
void div(Translator& t) { arithmetic(t, "Div"); }

}  // namespace

std::vector<OperationRow> elementwise_operations() {
  return {
      {"Relu", relu},
      {"Clip", clip, "bounds that are computed"},
      {"LeakyRelu", leaky_relu},
      {"PRelu", prelu, "slopes other than one, or one for each channel"},
      {"Sigmoid", sigmoid},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hardswish},
      {"SiLU", silu, "", kOwnDomain},
      {"Gelu", gelu, "approximate: tanh"},
      {"GELU", gelu, "", kOwnDomain},
      {"Softmax", softmax, "dimensions other than the channels and the last"},
      {"Neg", negative},
      {"Reciprocal", reciprocal},
      {"Tanh", tanh},
      {"Pow", power, "exponents other than 2 and 3"},
      {"Max", largest, "other than a value and a number"},
      {"Min", smallest, "other than a value and a number"},
      {"Sum", sum, "constants, different shapes"},
      {"Add", add},
      {"Sub", sub},
      {"Mul", mul},
      {"Div", div},
      {"Cast", cast, "computed values to integers"},
      {"Identity", identity},
      {"Dropout", identity, "left out, as in inference; the mask"},
  };
}

}  // namespace steelyard::imports
