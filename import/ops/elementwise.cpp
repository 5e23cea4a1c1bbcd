// Operations that compute each element by itself, and Softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/onnx/element_types.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/arithmetic.h"

namespace steelyard::imports {
namespace {

// One input, one output of its shape, however it is held.
void unary(Translator& t, const char* type, Options options = {}) {
  t.give_as(0, t.add(type, {t.as_held(0)}, std::move(options)), t.input(0).shape);
}

void relu(Translator& t) { unary(t, "ReLU"); }
void sigmoid(Translator& t) { unary(t, "Sigmoid"); }
void hardswish(Translator& t) { unary(t, "Hardswish"); }
void silu(Translator& t) { unary(t, "SiLU"); }

void sqrt(Translator& t) { unary(t, "Sqrt"); }
void exp(Translator& t) { unary(t, "Exp"); }
void log(Translator& t) { unary(t, "Log"); }
void abs(Translator& t) { unary(t, "Abs"); }
void erf(Translator& t) { unary(t, "Erf"); }
void tanh(Translator& t) { unary(t, "Tanh"); }

void gelu(Translator& t) {
  const std::string how = t.node().text("approximate", "none");
  if (how != "none" && how != "tanh") refuse("approximate: " + how + " is not supported");
  unary(t, how == "tanh" ? "TanhGELU" : "GELU");
}

void hard_sigmoid(Translator& t) {
  unary(t, "HardSigmoid",
        stored_options(kernels::Ramp{.slope = double{t.node().real("alpha", 0.2F)},
                                     .offset = double{t.node().real("beta", 0.5F)}}));
}

void leaky_relu(Translator& t) {
  unary(t, "LeakyReLU", stored_options(NegativeSlope{double{t.node().real("alpha", 0.01F)}}));
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
      t.add_named(t.node().input(1), "PReLU", {t.held(0, last)}, PReluOptions{slope.size()});
  t.set_weight(module, "weight", slope, {slope.size()});
  t.give(module, shape, last);
}

void clip(Translator& t) {
  const auto bound = [&](const char* name, std::size_t i, double otherwise) -> double {
    std::optional<double> value = otherwise;
    if (t.node().has(name)) {
      value = t.node().real(name, 0);
    } else if (const Constant* given = t.optional_constant(i, name)) {
      value = scalar_of(*given);
    }
    if (!value) refuse(std::string(name) + ": expected one number");
    if (std::isnan(*value)) refuse(std::string(name) + ": expected a number, got nan");
    return *value;
  };
  constexpr double kNone = std::numeric_limits<double>::max();
  const double lo = bound("min", 1, -kNone), hi = bound("max", 2, kNone);
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  if (lo == 0 && hi == 6) return unary(t, "ReLU6");
  if (lo == 0 && hi >= kFloatMax) return unary(t, "ReLU");
  if (!(lo <= hi)) refuse("min is above max");
  unary(t, "Clamp", stored_options(Bounds{lo, hi}));
}

// Towards zero, as a Cast to whole numbers rounds.
void truncated(Translator& t) {
  const ImportedValue in = t.input(0);
  const std::string x = t.as_held(0);
  const std::string size = t.add("Floor", {t.add("Abs", {x})});
  t.give({.shape = in.shape,
          .node = t.add("Mul", {t.add("Sign", {x}), size}),
          .channels_last = in.channels_last,
          .order = in.order,
          .whole = true});
}

// Floats of every width are float32 here.
void cast(Translator& t) {
  using namespace element_type;
  const std::int64_t to = t.node().integer("to", 0);
  const bool to_float = is_floating(to);
  ImportedValue value = t.input(0);
  if (value.compared && to_float) return t.give(as_numbers(t, value));
  const bool is_truth = value.compared || value.one_hot != 0;
  if (to == kBool && !is_truth) return give_other_than_zero(t, t.node().input(0));
  if (!value.whole && !value.known && (to == kInt32 || to == kInt64)) return truncated(t);
  const bool stays = value.whole && (to == kInt32 || to == kInt64 || to == kBool);
  if (!to_float && !stays) refuse("of computed values to another type than floats or bool");
  if (value.known && !value.known->floating) refuse("of constants that are whole numbers");
  value.whole = stays || value.one_hot != 0;
  t.give(std::move(value));
}

void identity(Translator& t) { t.give(t.input(0)); }

void active_dropout(Translator& t, double p, DropoutUnit unit) {
  if (!(p > 0 && p < 1))
    refuse("ratio: expected a number of at least 0 and below 1, got " + std::to_string(p));
  const StoredOptions options = stored_options(DropoutOptions{p, unit});
  const ExtentShape shape = t.input(0).shape;
  if (unit != DropoutUnit::kChannel) return unary(t, "Dropout", options);
  t.give(t.add("Dropout", {t.image(0)}, options), shape, true);
}

// What a file says is active in training becomes a module; inference has none.
void dropout(Translator& t) {
  const Constant* ratio = t.optional_constant(1, "ratio");
  const Constant* training = t.optional_constant(2, "training_mode");
  const bool active =
      training != nullptr && !training->integers.empty() && training->integers[0].value != 0;
  const std::optional<double> p = ratio == nullptr ? 0.5 : scalar_of(*ratio);
  if (!p) refuse("ratio: expected one number");
  if (!active || *p == 0) return identity(t);
  active_dropout(t, *p, DropoutUnit::kElement);
}

// Of whole channels or samples, which ONNX does not have; active in training.
void dropout_of_units(Translator& t) {
  const std::string unit = t.node().text("unit", "");
  const ExtentShape& shape = t.input(0).shape;
  const std::size_t least = unit == "channel" ? 3 : 2;
  if (shape.size() < least) refuse("expected " + std::to_string(least) + " dimensions or more");
  if (!shape[0].of_batch) refuse("expected the batch as the first dimension");
  for (const Word<DropoutUnit>& row : words_of(DropoutUnit{})) {
    if (row.word == unit) return active_dropout(t, t.node().real("ratio", 0), row.value);
  }
  refuse("unit: expected element, channel or sample, got '" + unit + "'");
}

// Over all dimensions from the axis on, as operation sets before 13 have it.
void over_all_from(Translator& t, const char* type, std::size_t axis) {
  const ExtentShape shape = t.input(0).shape;
  if (axis == 0) refuse("over the batch");
  ExtentShape rows(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  rows.push_back(elements({shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()}));
  const std::string node = t.add("Reshape", {t.plain(0)}, NewShape{open_sizes(rows)});
  t.give(t.add("Reshape", {t.add(type, {node})}, NewShape{open_sizes(shape)}), shape, false);
}

void over_classes(Translator& t, const char* type) {
  const ExtentShape shape = t.input(0).shape;
  const std::size_t axis = axis_of(t.node().integer("axis", t.opset() < 13 ? 1 : -1), shape.size());
  if (shape[axis].of_batch) refuse("over the batch");
  const auto beyond = shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1;
  const bool alone = std::all_of(beyond, shape.end(), [](Extent e) { return e == Extent{1}; });
  if (t.opset() < 13 && !alone) return over_all_from(t, type, axis);
  give_along(t, axis, type, {});
}
void softmax(Translator& t) { over_classes(t, "Softmax"); }
void log_softmax(Translator& t) { over_classes(t, "LogSoftmax"); }

// --- arithmetic

ExtentShape extents(const Shape& shape) {
  ExtentShape result;
  for (const std::int64_t dim : shape) result.push_back({dim});
  return result;
}

// Values that are combined one after another.
struct Partial {
  std::string node;
  ExtentShape shape;  // ONNX's
  Order order;        // in which it is held
  bool whole = false;
};

Partial joined(Translator& t, const std::string& type, const Partial& a, const Partial& b) {
  const std::string join = type == "Add" && a.shape != b.shape ? "BroadcastAdd" : type;
  ExtentShape shape = broadcast(a.shape, b.shape);
  const Order plain = held_order(shape.size(), false);
  return {t.add(join, {a.node, b.node}), shape, a.order.size() == shape.size() ? a.order : plain,
          a.whole};
}

Partial with_constant(Translator& t, const std::string& type, const Partial& x,
                      const Constant& value, bool constant_first) {
  if (value.floating == x.whole) refuse("of integers");
  const ExtentShape result = broadcast(x.shape, extents(value.shape));
  if (result.size() > x.shape.size()) {
    refuse("its constant " + shape_string(value.shape) + " has more dimensions than " +
           to_string(x.shape));
  }
  const Constant moved = laid_out(as_floats(value), x.order);
  const bool ordered = type == "Sub" || type == "Div";
  const std::string name = constant_first && ordered ? "Constant" + type : type + "Constant";
  const bool trainable = moved.size() > 1 && !x.whole;
  const std::string module = t.add(name, {x.node}, StoredConstant{moved.shape, trainable});
  t.set_weight(module, "value", moved);
  return {module, result, x.order, x.whole};
}

// The order in which the computed inputs can be held together: where one has an order of its own
// that one, else with channels last where one is held so.
Order common_order(Translator& t) {
  Order own;
  std::size_t rank = 0;
  bool last = false, same_rank = true;
  for (std::size_t i = 0; i < t.node().inputs.size(); ++i) {
    const ImportedValue& value = t.input(i);
    if (value.known) continue;
    same_rank = same_rank && (rank == 0 || value.rank() == rank);
    rank = std::max(rank, value.rank());
    last = last || value.channels_last;
    if (own.empty()) own = value.order;
  }
  if (same_rank && !own.empty()) return own;
  return held_order(rank, last && same_rank && rank > 2);
}

// Inputs from the first to the last, constants among them; the first computed one comes first where
// the order does not matter.
Partial combined(Translator& t, const std::string& type) {
  const Order order = common_order(t);
  const auto partial = [&](std::size_t i) {
    const ExtentShape shape = t.input(i).shape;
    const Order held = shape.size() == order.size() ? order : held_order(shape.size(), false);
    return Partial{t.held_in(i, held), shape, held, t.input(i).whole};
  };
  const std::size_t count = t.node().inputs.size();
  std::size_t first = 0;
  while (first < count && t.input(first).known) ++first;
  if (first == count) refuse("of constants");
  Partial sum = partial(first);
  for (std::size_t i = 0; i < count; ++i) {
    if (i == first) continue;
    const ImportedValue& next = t.input(i);
    sum = next.known ? with_constant(t, type, sum, *next.known, i < first)
                     : joined(t, type, sum, partial(i));
  }
  return sum;
}

void combine_all(Translator& t, const std::string& type) {
  const Partial sum = combined(t, type);
  give_in_order(t, sum.node, sum.shape, sum.order);
}

void arithmetic(Translator& t, const char* type) {
  if (t.node().inputs.size() != 2) refuse("of other than two operands");
  combine_all(t, type);
}

void of_number(Translator& t, const char* type, float value) {
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  t.give(with_number(t, type, t.held(0, last), value), shape, last);
}
void negative(Translator& t) { of_number(t, "MulConstant", -1); }
void reciprocal(Translator& t) { of_number(t, "ConstantDiv", 1); }

void power(Translator& t) {
  const Constant& given = t.constant(1, "exponent");
  const auto exponent = scalar_of(given);
  if (!exponent || !std::isfinite(*exponent)) refuse("an exponent other than one finite number");
  if (given.shape.size() > t.input(0).rank()) {
    refuse("its exponent " + shape_string(given.shape) + " has more dimensions than " +
           to_string(t.input(0).shape));
  }
  if (*exponent != 2 && *exponent != 3) return unary(t, "Pow", stored_options(Exponent{*exponent}));
  const ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  const std::string x = t.held(0, last);
  std::string node = t.add("Mul", {x, x});
  if (*exponent == 3) node = t.add("Mul", {node, x});
  t.give(node, shape, last);
}

// Max or Min of any number of values, or of one value and a number, which is a bound.
void extreme(Translator& t, bool largest) {
  if (t.node().inputs.size() != 2 || t.input(0).known.has_value() == t.input(1).known.has_value()) {
    return combine_all(t, largest ? "Max" : "Min");
  }
  const std::size_t at = t.input(0).known ? 0 : 1;
  const ImportedValue& number = t.input(at);
  const auto bound = scalar_of(*number.known);
  const ImportedValue& in = t.input(1 - at);
  if (!bound || std::isnan(*bound) || number.known->floating == in.whole ||
      number.known->shape.size() > in.rank()) {
    return combine_all(t, largest ? "Max" : "Min");
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (*bound == (largest ? -kNone : kNone)) return t.give(in);
  const ExtentShape shape = in.shape;
  const bool last = in.channels_last;
  constexpr double kMost = std::numeric_limits<double>::max();
  t.give(t.add("Clamp", {t.held(1 - at, last)},
               Bounds{largest ? *bound : -kMost, largest ? kMost : *bound}),
         shape, last);
}
void largest(Translator& t) { extreme(t, true); }
void smallest(Translator& t) { extreme(t, false); }

void sum(Translator& t) { combine_all(t, "Add"); }
void mean(Translator& t) {
  const Partial sum = combined(t, "Add");
  const auto count = static_cast<float>(t.node().inputs.size());
  const std::string node = count == 1 ? sum.node : with_number(t, "DivConstant", sum.node, count);
  give_in_order(t, node, sum.shape, sum.order);
}
void add(Translator& t) {
  if (!give_layer_norm(t) && !give_masked(t)) arithmetic(t, "Add");
}
void sub(Translator& t) { arithmetic(t, "Sub"); }
void mul(Translator& t) { arithmetic(t, "Mul"); }
void div_no_nan(Translator& t) {
  for (const std::size_t i : {0U, 1U}) {
    if (t.input(i).known) refuse("of a constant");
  }
  arithmetic(t, "DivNoNan");
}
void div(Translator& t) {
  if (!give_softmax(t) && !give_layer_norm(t)) arithmetic(t, "Div");
}

}  // namespace

void give_along(Translator& t, std::size_t axis, const std::string& type, Options options) {
  const ExtentShape shape = t.input(0).shape;
  fixed(shape[axis]);
  Order order = t.input(0).order;
  if (order.empty()) order = held_order(shape.size(), false);
  std::erase(order, axis);
  order.push_back(axis);
  give_in_order(t, t.add(type, {t.held_in(0, order)}, std::move(options)), shape, order);
}

Constant laid_out(const Constant& value, const Order& order) {
  Constant moved = value;
  if (value.size() == 1) {
    moved.shape = {};
  } else if (order != held_order(order.size(), false)) {
    moved.shape.insert(moved.shape.begin(), order.size() - moved.shape.size(), 1);
    moved = transposed(moved, {order.begin(), order.end()});
  }
  return moved;
}

std::vector<OperationRow> elementwise_operations() {
  constexpr auto kMoved = WholeNumbers::kMoved;
  return {
      {"Relu", relu},
      {"Clip", clip, "bounds that are computed"},
      {"LeakyRelu", leaky_relu},
      {"PRelu", prelu, "slopes other than one, or one for each channel"},
      {"Sigmoid", sigmoid},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hardswish},
      {"SiLU", silu, "", kOwnDomain},
      {"Gelu", gelu},
      {"GELU", gelu, "", kOwnDomain},
      {"Softmax", softmax, "over the batch"},
      {"LogSoftmax", log_softmax, "over the batch"},
      {"Sqrt", sqrt},
      {"Exp", exp},
      {"Log", log},
      {"Abs", abs, "", "", kMoved},
      {"Erf", erf},
      {"Neg", negative, "", "", kMoved},
      {"Reciprocal", reciprocal},
      {"Tanh", tanh},
      {"Pow", power, "exponents other than one number"},
      {"Max", largest, "", "", kMoved},
      {"Min", smallest, "", "", kMoved},
      {"Sum", sum},
      {"Mean", mean},
      {"Add", add, "", "", kMoved},
      {"Sub", sub, "", "", kMoved},
      {"Mul", mul, "", "", kMoved},
      {"Div", div},
      {"DivNoNan", div_no_nan, "", kOwnDomain},
      {"Cast", cast, "computed floats to other types than bool, int32 and int64", "",
       WholeNumbers::kRead},
      {"Identity", identity, "", "", kMoved},
      {"Dropout", dropout, "the mask; left out without training_mode, as in inference"},
      {"Dropout", dropout_of_units, "", kTrainingDomain},
  };
}

}  // namespace steelyard::imports
