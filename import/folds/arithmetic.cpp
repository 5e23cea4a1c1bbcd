// Arithmetic, comparisons and choices, and other types of elements.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/import/folds/folds.h"
#include "steelyard/import/onnx/element_types.h"

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

Constant of_truths(Shape shape, std::vector<Extent> truths) {
  return {.shape = std::move(shape), .integers = std::move(truths)};
}

Constant to_booleans(const Constant& x) {
  std::vector<Extent> truths;
  for (const float v : x.reals) truths.push_back({v != 0});
  for (const Extent& e : x.integers) truths.push_back({e.value != 0});
  return of_truths(x.shape, std::move(truths));
}

Constant to_integers(const Constant& x, std::int64_t type) {
  const auto range = element_type::integers(type);
  if (!range) refuse("to a type other than numbers and bool");
  Constant y{.shape = x.shape, .integers = x.integers};
  y.integers.reserve(static_cast<std::size_t>(x.size()));
  for (const float v : x.reals) {
    // As processors do: the logarithm of a distance of 0, which a later Where leaves aside.
    if (std::isinf(v) && v < 0 && range->least <= INT32_MIN) {
      y.integers.push_back({range->least});
      continue;
    }
    if (!(std::abs(v) < 9e18F)) refuse("a float that no integer holds");
    y.integers.push_back({static_cast<std::int64_t>(v)});
  }
  for (const Extent& e : y.integers) {
    if (!e.of_batch && (e.value < range->least || e.value > range->most)) {
      refuse("of " + std::to_string(e.value) + " to a type that does not hold it");
    }
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
  const bool half = type == element_type::kFloat16;
  if ((!half && type != element_type::kBFloat16) || y.reals.empty()) return y;
  const DType narrow = half ? DType::kF16 : DType::kBF16;
  const Tensor rounded = Tensor::from(y.reals, x.shape).to(narrow).to(DType::kF32);
  y.reals.assign(rounded.span<float>().begin(), rounded.span<float>().end());
  return y;
}

Constant cast(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::int64_t to = node.integer("to", element_type::kFloat);
  if (to == element_type::kBool) return to_booleans(x);
  return element_type::is_floating(to) ? to_floats(x, to) : to_integers(x, to);
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

// Two operands in the shape to which they broadcast.
struct Pair {
  Constant a, b;
};
Pair pair_of(const FoldInputs& in) {
  const Shape shape = broadcast(required(in, 0).shape, required(in, 1).shape);
  if (in[0]->floating != in[1]->floating) refuse("operands of two types");
  const std::int64_t like = std::max(in[0]->size(), in[1]->size());
  return {expanded(*in[0], shape, like), expanded(*in[1], shape, like)};
}

Constant arithmetic(char op, const FoldInputs& in) {
  auto [a, b] = pair_of(in);
  if (!a.floating && op == '^') refuse("a power of whole numbers");
  for (std::size_t i = 0; i < a.reals.size(); ++i)
    a.reals[i] = combined(op, a.reals[i], b.reals[i]);
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    a.integers[i] = combined(op, a.integers[i], b.integers[i]);
  }
  return a;
}

// The exponent may be of another type.
Constant power(const FoldInputs& in) {
  const Constant exponent =
      required(in, 0).floating ? to_floats(required(in, 1), element_type::kFloat) : required(in, 1);
  return arithmetic('^', {in[0], &exponent});
}

Constant sum_of_all(const FoldInputs& in) {
  Constant all = required(in, 0);
  for (std::size_t i = 1; i < in.size(); ++i) all = arithmetic('+', {&all, &required(in, i)});
  return all;
}

// The remainder, of the divisor's sign or with `truncates` of the dividend's, as fmod() has it.
Constant modulo(const OnnxNode& node, const FoldInputs& in) {
  const bool truncates = node.integer("fmod", 0) != 0;
  auto [a, b] = pair_of(in);
  if (a.floating && !truncates) refuse("of floats without fmod");
  for (std::size_t i = 0; i < a.reals.size(); ++i) a.reals[i] = std::fmod(a.reals[i], b.reals[i]);
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    const Extent quotient = combined('/', a.integers[i], b.integers[i]);
    Extent rest = combined('-', a.integers[i], combined('*', quotient, b.integers[i]));
    const std::int64_t divisor = b.integers[i].value;
    if (!truncates && rest.value != 0 && (rest.value < 0) != (divisor < 0)) {
      rest = combined('+', rest, b.integers[i]);
    }
    a.integers[i] = rest;
  }
  return a;
}

// --- comparisons and logic

// Below, at or above 0 as a is below, at or above b. There is one sample at least.
int compared(const Extent& a, const Extent& b) {
  if (a.of_batch != b.of_batch && a.value != 0 && b.value != 0) {
    refuse("a comparison with the batch's size");
  }
  return a.value < b.value ? -1 : a.value > b.value ? 1 : 0;
}

template <typename Holds>
FoldRow comparison(const char* op, const Holds& holds) {
  return one_output(op, [holds](const OnnxNode&, const FoldInputs& in) {
    const auto [a, b] = pair_of(in);
    std::vector<Extent> truths;
    for (std::size_t i = 0; i < a.reals.size(); ++i)
      truths.push_back({holds(a.reals[i], b.reals[i])});
    for (std::size_t i = 0; i < a.integers.size(); ++i) {
      truths.push_back({holds(compared(a.integers[i], b.integers[i]), 0)});
    }
    return of_truths(a.shape, std::move(truths));
  });
}

// Whether both are equal. For a multiple of the batch's size and a number it says only what holds
// for any size, and refuses the rest: N may be 1, not 0.
bool are_equal(const Extent& a, const Extent& b) {
  if (a.of_batch == b.of_batch) return a.value == b.value;
  const Extent& multiple = a.of_batch ? a : b;
  const std::int64_t number = a.of_batch ? b.value : a.value;
  if (multiple.value == 0) return number == 0;
  const std::int64_t size = combined('/', Extent{number}, Extent{multiple.value}).value;
  if (size > 0 && size * multiple.value == number) refuse("a comparison with the batch's size");
  return false;
}

Constant equal(const FoldInputs& in) {
  const auto [a, b] = pair_of(in);
  std::vector<Extent> truths;
  for (std::size_t i = 0; i < a.reals.size(); ++i) truths.push_back({a.reals[i] == b.reals[i]});
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    truths.push_back({are_equal(a.integers[i], b.integers[i])});
  }
  return of_truths(a.shape, std::move(truths));
}

template <typename Truth>
FoldRow logic(const char* op, const Truth& truth) {
  return one_output(op, [truth](const OnnxNode&, const FoldInputs& in) {
    const Constant a = to_booleans(required(in, 0)), b = to_booleans(required(in, 1));
    auto [x, y] = pair_of({&a, &b});
    for (std::size_t i = 0; i < x.integers.size(); ++i) {
      x.integers[i] = {truth(x.integers[i].value != 0, y.integers[i].value != 0)};
    }
    return std::move(x);
  });
}

Constant opposite(const FoldInputs& in) {
  Constant x = to_booleans(required(in, 0));
  for (Extent& e : x.integers) e = {e.value == 0};
  return x;
}

// The larger or the smaller of each two.
Constant extreme(const Constant& x, const Constant& y, bool largest) {
  auto [a, b] = pair_of({&x, &y});
  for (std::size_t i = 0; i < a.reals.size(); ++i) {
    const float of_both =
        largest ? std::max(a.reals[i], b.reals[i]) : std::min(a.reals[i], b.reals[i]);
    a.reals[i] = std::isnan(b.reals[i]) ? b.reals[i] : of_both;  // std::max(NaN, x) is NaN
  }
  for (std::size_t i = 0; i < a.integers.size(); ++i) {
    const bool above = compared(b.integers[i], a.integers[i]) > 0;
    if (above == largest) a.integers[i] = b.integers[i];
  }
  return a;
}

Constant extreme_of_all(const FoldInputs& in, bool largest) {
  Constant all = required(in, 0);
  for (std::size_t i = 1; i < in.size(); ++i) all = extreme(all, required(in, i), largest);
  return all;
}

Constant clip(const OnnxNode& node, const FoldInputs& in) {
  Constant x = required(in, 0);
  const auto bound = [&](const char* name, std::size_t i, bool largest) {
    const Constant attribute{.shape = {}, .floating = true, .reals = {node.real(name, 0)}};
    const Constant* number = node.has(name) ? &attribute : given(in, i);
    if (number != nullptr) x = extreme(x, *number, largest);
  };
  bound("min", 1, true);
  bound("max", 2, false);
  return x;
}

Constant where(const FoldInputs& in) {
  const Shape shape =
      broadcast(broadcast(required(in, 0).shape, required(in, 1).shape), required(in, 2).shape);
  const std::int64_t like = std::max({in[0]->size(), in[1]->size(), in[2]->size()});
  const Constant condition = expanded(*in[0], shape, like), b = expanded(*in[2], shape, like);
  Constant a = expanded(*in[1], shape, like);
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

Constant absolute(const FoldInputs& in) {
  Constant x = required(in, 0);
  for (float& v : x.reals) v = std::abs(v);
  for (Extent& e : x.integers) {
    if (e.value < 0) e = combined('-', {0}, e);
  }
  return x;
}

Constant sign(const FoldInputs& in) {
  Constant x = required(in, 0);
  for (float& v : x.reals) v = v > 0 ? 1.0F : v < 0 ? -1.0F : v;
  for (Extent& e : x.integers) e = {compared(e, {0})};
  return x;
}

}  // namespace

std::vector<FoldRow> arithmetic_folds() {
  const auto with = [](const char* op, Constant (*f)(const FoldInputs&)) {
    return one_output(op, [f](const OnnxNode&, const FoldInputs& in) { return f(in); });
  };
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
      with("Pow", power),
      with("Sum", sum_of_all),
      one_output("Mod", modulo),
      unary("Sqrt", [](float v) { return std::sqrt(v); }),
      unary("Exp", [](float v) { return std::exp(v); }),
      unary("Log", [](float v) { return std::log(v); }),
      unary("Erf", [](float v) { return std::erf(v); }),
      unary("Sin", [](float v) { return std::sin(v); }),
      unary("Cos", [](float v) { return std::cos(v); }),
      unary("Tanh", [](float v) { return std::tanh(v); }),
      unary("Sigmoid", [](float v) { return 1 / (1 + std::exp(-v)); }),
      unary("Relu", [](float v) { return std::max(v, 0.0F); }),
      unary("Floor", [](float v) { return std::floor(v); }),
      unary("Ceil", [](float v) { return std::ceil(v); }),
      unary("Round", [](float v) { return std::nearbyint(v); }),  // halves to even numbers
      unary("Reciprocal", [](float v) { return 1 / v; }),
      with("Neg", negated),
      with("Abs", absolute),
      with("Sign", sign),
      with("Equal", equal),
      comparison("Greater", [](auto a, auto b) { return a > b; }),
      comparison("GreaterOrEqual", [](auto a, auto b) { return a >= b; }),
      comparison("Less", [](auto a, auto b) { return a < b; }),
      comparison("LessOrEqual", [](auto a, auto b) { return a <= b; }),
      with("Not", opposite),
      logic("And", [](bool a, bool b) { return a && b; }),
      logic("Or", [](bool a, bool b) { return a || b; }),
      logic("Xor", [](bool a, bool b) { return a != b; }),
      with("Max", [](const FoldInputs& in) { return extreme_of_all(in, true); }),
      with("Min", [](const FoldInputs& in) { return extreme_of_all(in, false); }),
      one_output("Clip", clip),
      with("Where", where),
  };
}

}  // namespace steelyard::imports
