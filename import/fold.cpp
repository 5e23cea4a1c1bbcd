#include "steelyard/import/fold.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "steelyard/import/constants.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

using Inputs = std::vector<const Constant*>;

const Constant& required(const Inputs& inputs, std::size_t i) {
  if (i >= inputs.size() || inputs[i] == nullptr) {
    refuse("expected an input " + std::to_string(i + 1));
  }
  return *inputs[i];
}
const Constant* optional(const Inputs& inputs, std::size_t i) {
  return i < inputs.size() ? inputs[i] : nullptr;
}

Constant reshaped(const Constant& x, Shape shape) {
  if (limited_size(shape) != x.size()) {
    refuse("cannot reshape " + shape_string(x.shape) + " to " + shape_string(shape));
  }
  Constant y = x;
  y.shape = std::move(shape);
  return y;
}

Constant integers(const std::vector<std::int64_t>& values) {
  Constant c{.shape = {static_cast<std::int64_t>(values.size())}};
  for (const std::int64_t v : values) c.integers.push_back({v});
  return c;
}

// Axes of an attribute, which newer operation sets have as an input.
std::vector<std::int64_t> axes_of(const OnnxNode& node, const Inputs& inputs) {
  if (node.has("axes")) return node.integers("axes");
  const Constant* given = optional(inputs, 1);
  return given == nullptr ? std::vector<std::int64_t>{} : integers_of(*given, "axes");
}

Shape unsqueezed(const Shape& shape, const std::vector<std::int64_t>& axes) {
  const std::size_t rank = shape.size() + axes.size();
  std::vector<bool> added(rank, false);
  for (const std::int64_t axis : axes) added[axis_of(axis, rank)] = true;
  if (static_cast<std::size_t>(std::count(added.begin(), added.end(), true)) != axes.size()) {
    refuse("the axes " + shape_string(axes) + " name one twice");
  }
  Shape result;
  auto next = shape.begin();
  for (const bool one : added) result.push_back(one ? 1 : *next++);
  return result;
}

Shape squeezed(const Shape& shape, const std::vector<std::int64_t>& axes) {
  std::vector<bool> removed(shape.size(), false);
  for (const std::int64_t axis : axes) removed[axis_of(axis, shape.size())] = true;
  Shape result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool drop = axes.empty() ? shape[i] == 1 : removed[i];
    if (drop && shape[i] != 1) refuse("cannot squeeze " + shape_string(shape));
    if (!drop) result.push_back(shape[i]);
  }
  return result;
}

// --- operations

Constant reshape(const OnnxNode& node, const Inputs& in) {
  const Constant& x = required(in, 0);
  Shape shape = integers_of(required(in, 1), "shape");
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && node.integer("allowzero", 0) == 0 && i < x.shape.size()) {
      shape[i] = x.shape[i];
    }
    if (shape[i] == -1) {
      open = &shape[i];
    } else {
      known *= shape[i];
    }
  }
  if (open != nullptr) *open = known > 0 ? x.size() / known : 0;
  return reshaped(x, shape);
}

Constant transpose(const OnnxNode& node, const Inputs& in) {
  const Constant& x = required(in, 0);
  std::vector<std::int64_t> order(x.shape.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return transposed(x, node.integers("perm", order));
}

Constant concat(const OnnxNode& node, const Inputs& in) {
  const Constant& first = required(in, 0);
  const std::size_t axis = axis_of(node.integer("axis", 0), first.shape.size());
  Constant y{.shape = first.shape, .floating = first.floating};
  y.shape[axis] = 0;
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= first.shape[i];
  for (std::size_t i = 0; i < in.size(); ++i) {
    Shape other = required(in, i).shape;
    if (other.size() != y.shape.size() || in[i]->floating != y.floating) refuse("inputs differ");
    y.shape[axis] += other[axis];
    other[axis] = first.shape[axis];
    if (other != first.shape) refuse("inputs differ in more than the axis");
  }
  limited_size(y.shape);
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const Constant* x : in) {
      const std::int64_t run = x->size() / std::max<std::int64_t>(outer, 1);
      if (y.floating) {
        y.reals.insert(y.reals.end(), x->reals.begin() + o * run, x->reals.begin() + (o + 1) * run);
      } else {
        y.integers.insert(y.integers.end(), x->integers.begin() + o * run,
                          x->integers.begin() + (o + 1) * run);
      }
    }
  }
  return y;
}

Constant gather(const OnnxNode& node, const Inputs& in) {
  const Constant& x = required(in, 0);
  const Constant& at = required(in, 1);
  const std::size_t axis = axis_of(node.integer("axis", 0), x.shape.size());
  std::vector<std::int64_t> rows = integers_of(at, "indices");
  for (std::int64_t& row : rows) {
    if (row < 0) row += x.shape[axis];
    if (row < 0 || row >= x.shape[axis]) refuse("an index is outside of its axis");
  }
  Shape shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), at.shape.begin(), at.shape.end());
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.shape.end());
  const auto strides = strides_of(x.shape), row_strides = strides_of(at.shape);
  return rearranged(x, shape, [&](const Positions& index) {
    std::int64_t from = 0, row = 0;
    for (std::size_t i = 0; i < axis; ++i) from += index[i] * strides[i];
    for (std::size_t i = 0; i < at.shape.size(); ++i) row += index[axis + i] * row_strides[i];
    for (std::size_t i = axis + 1; i < x.shape.size(); ++i) {
      from += index[i - 1 + at.shape.size()] * strides[i];
    }
    return from + rows[static_cast<std::size_t>(row)] * strides[axis];
  });
}

Constant slice(const OnnxNode& node, const Inputs& in) {
  const Constant& x = required(in, 0);
  const bool old = node.has("starts");
  const auto given = [&](const char* name, std::size_t i) {
    if (old) return node.integers(name);
    const Constant* input = optional(in, i);
    return input == nullptr ? std::vector<std::int64_t>{} : integers_of(*input, name);
  };
  const std::vector<std::int64_t> starts = given("starts", 1), ends = given("ends", 2);
  std::vector<std::int64_t> axes = given("axes", 3), steps = given("steps", 4);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  steps.resize(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size())
    refuse("starts and ends differ");
  std::vector<SlicedAxis> taken;
  for (const std::int64_t extent : x.shape) taken.push_back({0, extent, 1});
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = axis_of(axes[i], x.shape.size());
    taken[axis] = sliced(starts[i], ends[i], steps[i], x.shape[axis]);
  }
  Shape shape;
  for (const SlicedAxis& axis : taken) shape.push_back(axis.count);
  const auto strides = strides_of(x.shape);
  return rearranged(x, shape, [&](const Positions& index) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      from += (taken[i].first + index[i] * taken[i].step) * strides[i];
    }
    return from;
  });
}

// TensorProto.DataType of the floating types.
bool is_floating_type(std::int64_t type) {
  return type == 1 || type == 10 || type == 11 || type == 16;
}

Constant cast(const OnnxNode& node, const Inputs& in) {
  Constant x = required(in, 0);
  const std::int64_t to = node.integer("to", 1);
  constexpr std::int64_t kBool = 9;
  if (is_floating_type(to) == x.floating) return x;
  Constant y{.shape = x.shape, .floating = !x.floating};
  for (const Extent& e : x.integers) {
    if (e.of_batch) refuse("the batch's size as a float is not supported");
    y.reals.push_back(static_cast<float>(e.value));
  }
  for (const float v : x.reals) {
    if (!(std::abs(v) < 9e18F)) refuse("a float that no integer holds");
    y.integers.push_back({to == kBool ? v != 0 : static_cast<std::int64_t>(v)});
  }
  return y;
}

Constant constant_of_shape(const OnnxNode& node, const Inputs& in) {
  Constant one{.shape = {1}, .floating = true, .reals = {0}};
  if (const auto found = node.attributes.find("value"); found != node.attributes.end()) {
    if (const auto* value = std::get_if<Constant>(&found->second)) one = *value;
  }
  if (one.size() != 1) refuse("expected a value of one element");
  one.shape = {};
  return expanded(one, integers_of(required(in, 0), "shape"));
}

template <typename T>
const T* value_of(const OnnxNode& node, const char* name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

Constant constant(const OnnxNode& node) {
  if (const auto* tensor = value_of<Constant>(node, "value")) return *tensor;
  if (const auto* real = value_of<float>(node, "value_float")) return {{}, true, {*real}, {}};
  if (const auto* number = value_of<std::int64_t>(node, "value_int")) {
    return {{}, false, {}, {{*number}}};
  }
  if (const auto* list = value_of<std::vector<std::int64_t>>(node, "value_ints")) {
    return integers(*list);
  }
  if (const auto* reals = value_of<std::vector<float>>(node, "value_floats")) {
    return {{std::ssize(*reals)}, true, *reals, {}};
  }
  refuse("its value is of an unsupported kind");
}

// --- arithmetic

Extent combined(char op, const Extent& a, const Extent& b) {
  std::int64_t value = 0;
  bool overflow = false;
  bool of_batch = a.of_batch || b.of_batch;
  if (op == '*') {
    if (a.of_batch && b.of_batch) refuse("the square of the batch's size");
    overflow = __builtin_mul_overflow(a.value, b.value, &value);
  } else if (op == '/') {
    if (b.value == 0) refuse("a division by 0");
    if (b.of_batch && !a.of_batch) refuse("a division by the batch's size");
    if (a.of_batch && a.value % b.value != 0) refuse("a fraction of the batch's size");
    overflow = a.value == std::numeric_limits<std::int64_t>::min() && b.value == -1;
    value = overflow ? 0 : a.value / b.value;
    of_batch = a.of_batch && !b.of_batch;
  } else {
    if (a.of_batch != b.of_batch && a.value != 0 && b.value != 0) {
      refuse("a sum with the batch's size");
    }
    overflow = op == '+' ? __builtin_add_overflow(a.value, b.value, &value)
                         : __builtin_sub_overflow(a.value, b.value, &value);
  }
  if (overflow) refuse("an integer beyond 64 bits");
  return {value, of_batch && value != 0};
}

float combined(char op, float a, float b) {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    default:
      return std::pow(a, b);
  }
}

Constant arithmetic(char op, const Inputs& in) {
  const Shape shape = broadcast(required(in, 0).shape, required(in, 1).shape);
  Constant a = expanded(*in[0], shape);
  const Constant b = expanded(*in[1], shape);
  if (a.floating != b.floating || (!a.floating && op == '^')) refuse("operands of two types");
  for (std::size_t i = 0; i < a.reals.size(); ++i)
    a.reals[i] = combined(op, a.reals[i], b.reals[i]);
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    a.integers[i] = combined(op, a.integers[i], b.integers[i]);
  }
  return a;
}

Constant equal(const Inputs& in) {
  const Shape shape = broadcast(required(in, 0).shape, required(in, 1).shape);
  const Constant a = expanded(*in[0], shape), b = expanded(*in[1], shape);
  if (a.floating != b.floating) refuse("operands of two types");
  Constant y{.shape = shape};
  for (std::size_t i = 0; i < a.reals.size(); ++i) y.integers.push_back({a.reals[i] == b.reals[i]});
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    y.integers.push_back({a.integers[i] == b.integers[i]});
  }
  return y;
}

Constant where(const Inputs& in) {
  const Shape shape =
      broadcast(broadcast(required(in, 0).shape, required(in, 1).shape), required(in, 2).shape);
  const Constant condition = expanded(*in[0], shape), b = expanded(*in[2], shape);
  Constant a = expanded(*in[1], shape);
  if (a.floating != b.floating || condition.floating) refuse("operands of two types");
  for (std::size_t i = 0; i < condition.integers.size(); ++i) {
    if (condition.integers[i].value != 0) continue;
    if (a.floating) {
      a.reals[i] = b.reals[i];
    } else {
      a.integers[i] = b.integers[i];
    }
  }
  return a;
}

Constant of_each(const Inputs& in, float (*f)(float)) {
  Constant x = required(in, 0);
  if (!x.floating) refuse("expected floats");
  std::transform(x.reals.begin(), x.reals.end(), x.reals.begin(), f);
  return x;
}

Constant negated(const Inputs& in) {
  Constant x = required(in, 0);
  for (float& v : x.reals) v = -v;
  for (Extent& e : x.integers) e.value = -e.value;
  return x;
}

Constant range(const Inputs& in) {
  const auto first = scalar_of(required(in, 0)), limit = scalar_of(required(in, 1)),
             step = scalar_of(required(in, 2));
  if (in[0]->floating || !first || !limit || !step || *step == 0) refuse("expected whole numbers");
  const double count = std::max(0.0, std::ceil((*limit - *first) / *step));
  if (count > static_cast<double>(kMostElementsOfAConstant)) refuse("a constant that is too large");
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
    values.push_back(static_cast<std::int64_t>(*first) + i * static_cast<std::int64_t>(*step));
  }
  return integers(values);
}

Constant product_of_all(const OnnxNode& node, const Inputs& in) {
  const Constant& x = required(in, 0);
  if (x.floating || x.shape.size() != 1) refuse("expected a list of whole numbers");
  Extent product{1};
  for (const Extent& e : x.integers) product = combined('*', product, e);
  Constant y{.shape = {}, .integers = {product}};
  if (node.integer("keepdims", 1) == 1) y.shape = {1};
  return y;
}

using Fold = std::function<Constant(const OnnxNode&, const Inputs&)>;

const std::map<std::string, Fold>& folds() {
  const auto binary = [](char op) {
    return [op](const OnnxNode&, const Inputs& in) { return arithmetic(op, in); };
  };
  const auto of_one = [](float (*f)(float)) {
    return [f](const OnnxNode&, const Inputs& in) { return of_each(in, f); };
  };
  static const std::map<std::string, Fold> kFolds{
      {"Constant", [](const OnnxNode& node, const Inputs&) { return constant(node); }},
      {"Identity", [](const OnnxNode&, const Inputs& in) { return required(in, 0); }},
      {"Cast", cast},
      {"Reshape", reshape},
      {"Transpose", transpose},
      {"Concat", concat},
      {"Gather", gather},
      {"Slice", slice},
      {"Unsqueeze",
       [](const OnnxNode& node, const Inputs& in) {
         return reshaped(required(in, 0), unsqueezed(in[0]->shape, axes_of(node, in)));
       }},
      {"Squeeze",
       [](const OnnxNode& node, const Inputs& in) {
         return reshaped(required(in, 0), squeezed(in[0]->shape, axes_of(node, in)));
       }},
      {"Expand",
       [](const OnnxNode&, const Inputs& in) {
         return expanded(required(in, 0), integers_of(required(in, 1), "shape"));
       }},
      {"ConstantOfShape", constant_of_shape},
      {"Shape",
       [](const OnnxNode& node, const Inputs& in) {
         if (node.has("start") || node.has("end")) refuse("start and end are not supported");
         return integers(required(in, 0).shape);
       }},
      {"Add", binary('+')},
      {"Sub", binary('-')},
      {"Mul", binary('*')},
      {"Div", binary('/')},
      {"Pow", binary('^')},
      {"Sqrt", of_one([](float v) { return std::sqrt(v); })},
      {"Exp", of_one([](float v) { return std::exp(v); })},
      {"Log", of_one([](float v) { return std::log(v); })},
      {"Abs", of_one([](float v) { return std::abs(v); })},
      {"Erf", of_one([](float v) { return std::erf(v); })},
      {"Tanh", of_one([](float v) { return std::tanh(v); })},
      {"Floor", of_one([](float v) { return std::floor(v); })},
      {"Ceil", of_one([](float v) { return std::ceil(v); })},
      {"Reciprocal", of_one([](float v) { return 1 / v; })},
      {"Neg", [](const OnnxNode&, const Inputs& in) { return negated(in); }},
      {"Equal", [](const OnnxNode&, const Inputs& in) { return equal(in); }},
      {"Where", [](const OnnxNode&, const Inputs& in) { return where(in); }},
      {"Range", [](const OnnxNode&, const Inputs& in) { return range(in); }},
      {"ReduceProd", product_of_all},
  };
  return kFolds;
}

}  // namespace

std::optional<std::vector<Constant>> fold(const OnnxNode& node, const Inputs& inputs) {
  const auto found = folds().find(node.op);
  if (found == folds().end() || !node.domain.empty()) return std::nullopt;
  std::vector<Constant> outputs{found->second(node, inputs)};
  return outputs;
}

}  // namespace steelyard::imports
