// Arithmetic, comparisons and choices, and other types of elements.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/import/folds/folds.h"

namespace steelyard::imports {

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

namespace {

// --- types of elements

// TensorProto.DataType.
constexpr std::int64_t kFloat = 1, kBool = 9, kHalf = 10, kDouble = 11, kBrainFloat = 16;

bool is_floating_type(std::int64_t type) {
  return type == kFloat || type == kHalf || type == kDouble || type == kBrainFloat;
}

Constant of_truths(Shape shape, std::vector<Extent> truths) {
  return {.shape = std::move(shape), .integers = std::move(truths)};
}

Constant to_booleans(const Constant& x) {
  std::vector<Extent> truths;
  for (const float v : x.reals) truths.push_back({v != 0});
  for (const Extent& e : x.integers) truths.push_back({e.value != 0});
  return of_truths(x.shape, std::move(truths));
}

Constant to_integers(const Constant& x) {
  Constant y{.shape = x.shape, .integers = x.integers};
  for (const float v : x.reals) {
    if (!(std::abs(v) < 9e18F)) refuse("a float that no integer holds");
    y.integers.push_back({static_cast<std::int64_t>(v)});
  }
  return y;
}

// Rounded to what the type holds; wider ones are held as float32 here.
Constant to_floats(const Constant& x, std::int64_t type) {
  Constant y{.shape = x.shape, .floating = true, .reals = x.reals};
  for (const Extent& e : x.integers) {
    if (e.of_batch) refuse("the batch's size as a float is not supported");
    y.reals.push_back(static_cast<float>(e.value));
  }
  if ((type != kHalf && type != kBrainFloat) || y.reals.empty()) return y;
  const DType narrow = type == kHalf ? DType::kF16 : DType::kBF16;
  const Tensor rounded = Tensor::from(y.reals, x.shape).to(narrow).to(DType::kF32);
  y.reals.assign(rounded.span<float>().begin(), rounded.span<float>().end());
  return y;
}

Constant cast(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::int64_t to = node.integer("to", kFloat);
  if (to == kBool) return to_booleans(x);
  return is_floating_type(to) ? to_floats(x, to) : to_integers(x);
}

// --- arithmetic

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

Constant arithmetic(char op, const FoldInputs& in) {
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

Constant equal(const FoldInputs& in) {
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

Constant where(const FoldInputs& in) {
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

Constant of_each(const FoldInputs& in, float (*f)(float)) {
  Constant x = required(in, 0);
  if (!x.floating) refuse("expected floats");
  std::transform(x.reals.begin(), x.reals.end(), x.reals.begin(), f);
  return x;
}

Constant negated(const FoldInputs& in) {
  Constant x = required(in, 0);
  for (float& v : x.reals) v = -v;
  for (Extent& e : x.integers) e = combined('-', {0}, e);
  return x;
}

}  // namespace

std::vector<FoldRow> arithmetic_folds() {
  const auto binary = [](const char* op, char sign) {
    return one_output(
        op, [sign](const OnnxNode&, const FoldInputs& in) { return arithmetic(sign, in); });
  };
  const auto unary = [](const char* op, float (*f)(float)) {
    return one_output(op, [f](const OnnxNode&, const FoldInputs& in) { return of_each(in, f); });
  };
  return {
      one_output("Cast", cast),
      binary("Add", '+'),
      binary("Sub", '-'),
      binary("Mul", '*'),
      binary("Div", '/'),
      binary("Pow", '^'),
      unary("Sqrt", [](float v) { return std::sqrt(v); }),
      unary("Exp", [](float v) { return std::exp(v); }),
      unary("Log", [](float v) { return std::log(v); }),
      unary("Abs", [](float v) { return std::abs(v); }),
      unary("Erf", [](float v) { return std::erf(v); }),
      unary("Tanh", [](float v) { return std::tanh(v); }),
      unary("Floor", [](float v) { return std::floor(v); }),
      unary("Ceil", [](float v) { return std::ceil(v); }),
      unary("Reciprocal", [](float v) { return 1 / v; }),
      one_output("Neg", [](const OnnxNode&, const FoldInputs& in) { return negated(in); }),
      one_output("Equal", [](const OnnxNode&, const FoldInputs& in) { return equal(in); }),
      one_output("Where", [](const OnnxNode&, const FoldInputs& in) { return where(in); }),
  };
}

}  // namespace steelyard::imports
