// Comparisons and choices between values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/where.h"

namespace steelyard::imports {
namespace {

ExtentShape shape_of(const ImportedValue& value) {
  if (!value.known) return value.shape;
  ExtentShape shape;
  for (const std::int64_t dim : value.known->shape) shape.push_back({dim});
  return shape;
}

// Operands of one Where: a constant, or the name of a value in the file.
struct Operand {
  std::optional<Constant> constant = {};
  std::string name = {};
};

Operand number(float value) {
  return {.constant = Constant{.shape = {}, .floating = true, .reals = {value}}};
}

Operand operand(Translator& t, const std::string& name) {
  if (const Constant* constant = t.constant_called(name)) return {as_floats(*constant)};
  return {.constant = {}, .name = name};
}

// The operand that is chosen: infinities, as masks of attention have them, become the largest
// floats, so that a Softmax of nothing else is no NaN.
Operand choice(Translator& t, const std::string& name) {
  Operand chosen = operand(t, name);
  if (!chosen.constant) return chosen;
  constexpr float kMost = std::numeric_limits<float>::max();
  for (float& real : chosen.constant->reals)
    real = std::isnan(real) ? real : std::clamp(real, -kMost, kMost);
  return chosen;
}

// a where x compares so to y, else b.
ImportedValue chosen(Translator& t, const std::string& module,
                     const std::array<Operand, 4>& operands) {
  ExtentShape shape;
  std::size_t rank = 0;
  bool last = false, alike = true;
  for (const Operand& one : operands) {
    if (one.constant) continue;
    const ImportedValue& value = *t.value(one.name);
    alike = alike && (rank == 0 || value.rank() == rank);
    rank = std::max(rank, value.rank());
    last = last || value.channels_last;
  }
  if (rank == 0) refuse("of constants");
  if (!alike) refuse("of values of different numbers of dimensions");
  last = last && rank > 2;
  std::vector<std::string> nodes;
  WhereOptions options;
  const std::array shapes{&options.x, &options.y, &options.a, &options.b};
  std::vector<std::pair<std::string, Constant>> constants;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].constant) {
      const ImportedValue& value = *t.value(operands[i].name);
      shape = broadcast(shape, value.shape);
      nodes.push_back(t.node_of(operands[i].name, last));
      continue;
    }
    const Constant& constant = *operands[i].constant;
    if (constant.shape.size() > rank) {
      refuse("a constant " + shape_string(constant.shape) + " has more dimensions than " +
             std::to_string(rank));
    }
    ExtentShape extents;
    for (const std::int64_t dim : constant.shape) extents.push_back({dim});
    shape = broadcast(shape, extents);
    constants.emplace_back(Where::kOperands[i], laid_out(constant, held_order(rank, last)));
    *shapes[i] = constants.back().second.shape;
  }
  const std::string made = t.add(module, nodes, options);
  for (const auto& [name, constant] : constants) t.set_weight(made, name, constant);
  return {.shape = shape, .node = made, .channels_last = last};
}

// What a comparison tells, held as chosen() will give its numbers.
ImportedValue told_by(Translator& t, ExtentShape shape, Compared compared) {
  bool last = false;
  for (const std::string& name : {compared.x, compared.y}) {
    const ImportedValue* value = t.value(name);
    last = last || (value != nullptr && value->channels_last);
  }
  last = last && shape.size() > 2;
  return {.shape = std::move(shape),
          .channels_last = last,
          .whole = true,
          .compared = std::move(compared)};
}

Compared other_than_zero(Translator& t, const std::string& name) {
  const std::string zero = t.keep({.shape = {}, .known = number(0).constant});
  return {"WhereEqual", name, zero, /*holds=*/false};
}

// What input i says: a comparison, or such a one that was moved and is 0 or 1.
Compared truth(Translator& t, std::size_t i) {
  const ImportedValue& value = t.input(i);
  if (value.compared) return *value.compared;
  if (!value.whole || value.one_hot != 0) {
    refuse("its condition is neither a constant nor a comparison");
  }
  return other_than_zero(t, t.node().input(i));
}

void where(Translator& t) {
  const auto is_whole = [&](std::size_t i) {
    const ImportedValue& value = t.input(i);
    return value.known ? !value.known->floating : value.whole;
  };
  const bool whole = is_whole(1);
  if (whole != is_whole(2)) refuse("between floats and whole numbers");
  const ImportedValue condition = t.input(0);
  Operand a = choice(t, t.node().input(1)), b = choice(t, t.node().input(2));
  const auto give_chosen = [&](const std::string& module, const Operand& x, const Operand& y) {
    ImportedValue value = chosen(t, module, {x, y, a, b});
    value.whole = whole;
    t.give(std::move(value));
  };
  if (condition.known) {
    return give_chosen("WhereGreater", operand(t, t.node().input(0)), number(0));
  }
  const Compared compared = truth(t, 0);
  if (!compared.holds) std::swap(a, b);
  give_chosen(compared.module, operand(t, compared.x), operand(t, compared.y));
}

void give_compared(Translator& t, const std::string& module, std::size_t x, std::size_t y) {
  for (const std::size_t i : {x, y}) {
    if (t.input(i).one_hot != 0 || t.input(i).compared) refuse("of conditions");
  }
  t.give(told_by(t, broadcast(shape_of(t.input(x)), shape_of(t.input(y))),
                 {module, t.node().input(x), t.node().input(y)}));
}

void greater(Translator& t) { give_compared(t, "WhereGreater", 0, 1); }
void greater_equal(Translator& t) { give_compared(t, "WhereGreaterEqual", 0, 1); }
void less(Translator& t) { give_compared(t, "WhereGreater", 1, 0); }
void less_equal(Translator& t) { give_compared(t, "WhereGreaterEqual", 1, 0); }

void opposite(Translator& t) {
  Compared compared = truth(t, 0);
  compared.holds = !compared.holds;
  t.give(told_by(t, t.input(0).shape, std::move(compared)));
}

// Whether the largest score of a row is one that choice() made of minus infinity: then ONNX's
// Softmax of the row is no number.
Compared masked_rows(Translator& t, const OnnxNode& softmax) {
  const ExtentShape shape = t.input(0).shape;
  const ImportedValue* scores = t.value(softmax.input(0));
  const std::int64_t last = std::ssize(shape) - 1;
  const std::int64_t axis = softmax.integer("axis", t.opset() < 13 ? 1 : -1);
  if (scores->shape != shape || scores->joined || (axis != -1 && axis != last)) {
    refuse("of a Softmax over other than the last dimension, or of a joined batch");
  }
  const std::string largest = t.add("ReduceMax", {t.node_of(softmax.input(0), false)},
                                    ReduceOptions{{last}, /*keep=*/true});
  ExtentShape rows = shape;
  rows.back() = {1};
  const Operand border = number(std::numeric_limits<float>::lowest() / 2);
  return {"WhereGreater", t.keep({.shape = {}, .known = border.constant}),
          t.keep({.shape = rows, .node = largest})};
}

// No number is equal to itself if it is none.
void is_nan(Translator& t) {
  const std::string& x = t.node().input(0);
  const OnnxNode* maker = t.maker(x);
  const bool of_softmax = maker != nullptr && maker->op == "Softmax" && maker->domain.empty();
  t.give(
      told_by(t, t.input(0).shape,
              of_softmax ? masked_rows(t, *maker) : Compared{"WhereEqual", x, x, /*holds=*/false}));
}

// Two conditions, of which one may be a constant: the second where the first holds, or does not.
void logic(Translator& t, bool both) {
  const std::size_t first = t.input(0).known ? 1 : 0;
  const Compared compared = truth(t, first);
  const ImportedValue second = t.input(1 - first);
  Operand a = operand(t, t.node().input(1 - first));
  if (second.compared) {
    a.name = t.keep(as_numbers(t, second));
  } else if (!second.known) {
    truth(t, 1 - first);  // refuses others
  }
  Operand b = number(both ? 0 : 1);
  if (both != compared.holds) std::swap(a, b);
  ImportedValue value =
      chosen(t, compared.module, {operand(t, compared.x), operand(t, compared.y), a, b});
  value.whole = true;
  t.give(std::move(value));
}
void conjunction(Translator& t) { logic(t, true); }
void disjunction(Translator& t) { logic(t, false); }

}  // namespace

void give_comparison(Translator& t, const std::string& module) { give_compared(t, module, 0, 1); }

ImportedValue as_numbers(Translator& t, const ImportedValue& condition) {
  const Compared& compared = *condition.compared;
  ImportedValue numbers = chosen(t, compared.module,
                                 {operand(t, compared.x), operand(t, compared.y),
                                  number(compared.holds ? 1 : 0), number(compared.holds ? 0 : 1)});
  if (numbers.shape == condition.shape) return numbers;
  ExtentShape held;  // of what compares one number for several
  for (const std::size_t axis : held_order(condition.shape.size(), numbers.channels_last)) {
    held.push_back(condition.shape[axis]);
  }
  numbers.node = t.add("Expand", {numbers.node}, NewShape{open_sizes(held)});
  numbers.shape = condition.shape;
  return numbers;
}

void give_other_than_zero(Translator& t, const std::string& name) {
  t.give(told_by(t, t.input(0).shape, other_than_zero(t, name)));
}

bool give_masked(Translator& t) {
  if (t.node().inputs.size() != 2) return false;
  const std::size_t at = t.input(0).known ? 0 : 1;
  const ImportedValue &mask = t.input(at), &x = t.input(1 - at);
  if (!mask.known || x.known || !mask.known->floating || mask.repeated) return false;
  const std::vector<float>& reals = mask.known->reals;
  const bool masks =
      std::all_of(reals.begin(), reals.end(), [](float v) { return v == 0 || v == -HUGE_VALF; });
  if (!masks || std::find(reals.begin(), reals.end(), -HUGE_VALF) == reals.end()) return false;
  t.give(chosen(t, "WhereGreater",
                {choice(t, t.node().input(at)), number(-1), Operand{{}, t.node().input(1 - at)},
                 number(std::numeric_limits<float>::lowest())}));
  return true;
}

std::vector<OperationRow> choice_operations() {
  const std::string kNote = "read by arithmetic";
  return {
      {"Where", where, "conditions other than constants and comparisons", "", WholeNumbers::kRead},
      {"Greater", greater, kNote, "", WholeNumbers::kRead},
      {"GreaterOrEqual", greater_equal, kNote, "", WholeNumbers::kRead},
      {"Less", less, kNote, "", WholeNumbers::kRead},
      {"LessOrEqual", less_equal, kNote, "", WholeNumbers::kRead},
      {"IsNaN", is_nan, kNote},
      {"Not", opposite, "", "", WholeNumbers::kRead},
      {"And", conjunction, "", "", WholeNumbers::kRead},
      {"Or", disjunction, "", "", WholeNumbers::kRead},
  };
}

}  // namespace steelyard::imports
