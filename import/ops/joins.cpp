// Values one after another, constants among them.
#include <algorithm>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/where.h"

namespace steelyard::imports {
namespace {

// A constant among the computed operands of a Concat: the same one for each sample.
Constant of_one_sample(Translator& t, std::size_t i) {
  const ImportedValue& value = t.input(i);
  const bool repeated = value.repeated == std::size_t{0} || t.fixed_batch() == std::int64_t{1};
  if (!repeated || value.known->shape.empty() || value.known->shape[0] != 1) {
    refuse("one of its inputs is a constant that is not repeated for each sample");
  }
  return *value.known;
}

// With its channels last.
Constant held_constant(const Constant& constant, bool last) {
  if (!last) return constant;
  std::vector<std::int64_t> order;
  for (const std::size_t axis : held_order(constant.shape.size(), true)) {
    order.push_back(static_cast<std::int64_t>(axis));
  }
  return transposed(constant, order);
}

ExtentShape shape_of(Translator& t, std::size_t i) {
  if (!t.input(i).known) return t.input(i).shape;
  ExtentShape shape;
  for (const std::int64_t dim : of_one_sample(t, i).shape) shape.push_back({dim});
  shape[0] = {1, true};
  return shape;
}

// Such a constant as a parameter, for as many samples as `beside` has: what is chosen from one of
// its positions along the axis are zeros, whatever they are, and the constant is added to these.
std::string repeated_as(Translator& t, const Constant& constant, const std::string& beside,
                        std::size_t axis) {
  const std::string one = picked(t, beside, axis, constant.shape.size(), {0});
  const Constant zeros{.shape = constant.shape,
                       .floating = true,
                       .reals = std::vector<float>(constant.reals.size(), 0)};
  const Shape number;
  const std::string none =
      t.add("WhereGreater", {one}, WhereOptions{.x = number, .y = number, .a = constant.shape});
  t.set_weight(none, "x", {.shape = {}, .floating = true, .reals = {1}});
  t.set_weight(none, "y", {.shape = {}, .floating = true, .reals = {0}});
  t.set_weight(none, "a", zeros);
  const std::string sum =
      t.add("AddConstant", {none}, StoredConstant{constant.shape, /*trainable=*/true});
  t.set_weight(sum, "value", constant);
  return sum;
}

// How the computed inputs are held together, with the batch first, and where the first one of them
// is.
struct Joined {
  std::size_t first = 0;
  Order order;
};
Joined joined_inputs(Translator& t, const ExtentShape& shape) {
  const std::size_t count = t.node().inputs.size();
  Joined joined;
  while (joined.first < count && t.input(joined.first).known) ++joined.first;
  if (joined.first == count) refuse("of constants");
  const Order own = t.input(joined.first).order;
  bool last = false, alike = !own.empty();
  for (std::size_t i = 0; i < count; ++i) {
    alike = alike && !t.input(i).known && t.input(i).order == own;
    last = last || t.input(i).channels_last;
  }
  const auto batch = std::find_if(shape.begin(), shape.end(),
                                  [](const Extent& extent) { return extent.of_batch; });
  const bool later = batch != shape.begin() && batch != shape.end();
  joined.order = alike   ? own
                 : later ? order_from(static_cast<std::size_t>(batch - shape.begin()), shape.size())
                         : held_order(shape.size(), last);
  return joined;
}

void concat(Translator& t) {
  const std::size_t count = t.node().inputs.size();
  ExtentShape shape = shape_of(t, 0);
  const std::size_t axis = axis_of(t.node().integer("axis", 1), shape.size());
  shape[axis] = {0};
  for (std::size_t i = 0; i < count; ++i) {
    ExtentShape other = shape_of(t, i);
    if (other.size() == shape.size()) {
      shape[axis].value += fixed(other[axis]);
      other[axis] = shape[axis];
    }
    if (other != shape) refuse("its inputs differ in more than the dimension");
  }
  const auto [first, order] = joined_inputs(t, shape);
  const auto at =
      static_cast<std::size_t>(std::find(order.begin(), order.end(), axis) - order.begin());
  const std::string beside = t.held_in(first, order);
  const bool last = shape.size() > 2 && order == held_order(shape.size(), true);
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < count; ++i) {
    inputs.push_back(t.input(i).known
                         ? repeated_as(t, held_constant(of_one_sample(t, i), last), beside, at)
                         : t.held_in(i, order));
  }
  const bool of_rows = at + 1 == order.size();
  const std::string node =
      count == 1 ? inputs[0]
      : of_rows  ? t.add("Cat", inputs)
                 : t.add("CatAxis", inputs, JoinedAxis{static_cast<std::int64_t>(at)});
  give_in_order(t, node, shape, order);
}

}  // namespace

std::vector<OperationRow> join_operations() {
  return {
      {"Concat", concat, "constants, except those that are repeated for each sample", "",
       WholeNumbers::kMoved},
  };
}

}  // namespace steelyard::imports
