// What is computed of several elements of constants: reductions, running sums, products of
// matrices.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "steelyard/import/folds/folds.h"

namespace steelyard::imports {
namespace {

using Reals = std::span<const float>;
using Integers = std::span<const Extent>;

// A reduction of some elements, in double, and of whole numbers where there is one.
struct Reduction {
  const char* op;
  double (*of_reals)(Reals);
  Extent (*of_integers)(Integers) = nullptr;
};

template <typename F>
double sum_of(Reals x, const F& f) {
  return std::accumulate(x.begin(), x.end(), 0.0, [&](double sum, float v) { return sum + f(v); });
}
double sum(Reals x) {
  return sum_of(x, [](double v) { return v; });
}
double sum_of_squares(Reals x) {
  return sum_of(x, [](double v) { return v * v; });
}
double sum_of_absolutes(Reals x) {
  return sum_of(x, [](double v) { return std::abs(v); });
}
// log(sum of exp(x)), computed from differences from the largest, which do not overflow.
double log_of_sum_of_exponentials(Reals x) {
  const double largest = *std::max_element(x.begin(), x.end());
  if (std::isinf(largest)) return largest;
  return largest + std::log(sum_of(x, [&](double v) { return std::exp(v - largest); }));
}
double product(Reals x) { return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>()); }

Extent accumulated(Integers x, char op, std::int64_t start) {
  Extent result{start};
  for (const Extent& e : x) result = combined(op, result, e);
  return result;
}
Extent farthest(Integers x, bool largest) {
  Extent result = x.front();
  for (const Extent& e : x) {
    if (e.of_batch) refuse("a comparison with the batch's size");
    if (largest ? e.value > result.value : e.value < result.value) result = e;
  }
  return result;
}

constexpr Reduction kReductions[] = {
    {"ReduceSum", sum, [](Integers x) { return accumulated(x, '+', 0); }},
    {"ReduceProd", product, [](Integers x) { return accumulated(x, '*', 1); }},
    {"ReduceMean", [](Reals x) { return sum(x) / static_cast<double>(x.size()); }},
    {"ReduceMax", [](Reals x) { return double{*std::max_element(x.begin(), x.end())}; },
     [](Integers x) { return farthest(x, true); }},
    {"ReduceMin", [](Reals x) { return double{*std::min_element(x.begin(), x.end())}; },
     [](Integers x) { return farthest(x, false); }},
    {"ReduceL1", sum_of_absolutes},
    {"ReduceL2", [](Reals x) { return std::sqrt(sum_of_squares(x)); }},
    {"ReduceSumSquare", sum_of_squares},
    {"ReduceLogSum", [](Reals x) { return std::log(sum(x)); }},
    {"ReduceLogSumExp", log_of_sum_of_exponentials},
};

Constant reduced(const Reduction& reduction, const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::vector<std::int64_t> axes = axes_of(node, in);
  if (axes.empty() && node.integer("noop_with_empty_axes", 0) != 0) return x;
  std::vector<bool> reduces(x.shape.size(), axes.empty());
  for (const std::int64_t axis : axes) reduces[axis_of(axis, x.shape.size())] = true;
  std::vector<std::int64_t> kept, order;
  Constant y{.shape = {}, .floating = x.floating};
  std::size_t each = 1;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    (reduces[i] ? order : kept).push_back(static_cast<std::int64_t>(i));
    if (reduces[i]) each *= static_cast<std::size_t>(x.shape[i]);
    if (!reduces[i] || node.integer("keepdims", 1) != 0) {
      y.shape.push_back(reduces[i] ? 1 : x.shape[i]);
    }
  }
  order.insert(order.begin(), kept.begin(), kept.end());
  const Constant rows = transposed(x, order);  // what becomes one element lies together
  if (x.size() == 0) refuse("of no elements");
  if (!x.floating && reduction.of_integers == nullptr) refuse("of whole numbers");
  const auto count = static_cast<std::size_t>(limited_size(y.shape));
  for (std::size_t i = 0; i < count; ++i) {
    if (x.floating) {
      const double value = reduction.of_reals(Reals(rows.reals).subspan(i * each, each));
      y.reals.push_back(static_cast<float>(value));
    } else {
      y.integers.push_back(reduction.of_integers(Integers(rows.integers).subspan(i * each, each)));
    }
  }
  return y;
}

Constant running_sum(const OnnxNode& node, const FoldInputs& in) {
  Constant x = required(in, 0);
  const std::vector<std::int64_t> given_axis = integers_of(required(in, 1), "axis");
  if (given_axis.size() != 1) refuse("expected one axis");
  const std::size_t axis = axis_of(given_axis[0], x.shape.size());
  const bool exclusive = node.integer("exclusive", 0) != 0;
  const bool reverse = node.integer("reverse", 0) != 0;
  const std::int64_t stride = strides_of(x.shape)[axis], count = x.shape[axis];
  const auto add_up = [&](auto& elements, auto zero, const auto& plus) {
    for (std::int64_t first = 0; first < x.size(); ++first) {
      if (first / stride % count != 0) continue;  // not the first one along the axis
      auto total = zero;
      for (std::int64_t i = 0; i < count; ++i) {
        auto& element =
            elements[static_cast<std::size_t>(first + (reverse ? count - 1 - i : i) * stride)];
        const auto before = total;
        total = plus(total, element);
        element = exclusive ? before : total;
      }
    }
  };
  if (x.floating) {
    add_up(x.reals, 0.0F, [](float a, float b) { return a + b; });
  } else {
    add_up(x.integers, Extent{0},
           [](const Extent& a, const Extent& b) { return combined('+', a, b); });
  }
  return x;
}

Constant matrix_product(const OnnxNode&, const FoldInputs& in) {
  const Constant &a = required(in, 0), &b = required(in, 1);
  if (!a.floating || !b.floating || a.shape.size() < 2 || b.shape.size() < 2) {
    refuse("of other than matrices of floats");
  }
  const std::int64_t rows = a.shape.end()[-2], inner = a.shape.back(), columns = b.shape.back();
  if (b.shape.end()[-2] != inner) refuse("matrices that do not fit");
  Shape shape = broadcast(Shape(a.shape.begin(), a.shape.end() - 2),
                          Shape(b.shape.begin(), b.shape.end() - 2));
  const auto whole = [&](const Constant& x) {
    Shape all = shape;
    all.insert(all.end(), x.shape.end() - 2, x.shape.end());
    return expanded(x, all, std::max(a.size(), b.size()));
  };
  const Constant left = whole(a), right = whole(b);
  const std::int64_t count = limited_size(shape);
  shape.insert(shape.end(), {rows, columns});
  grown_size(shape, true, std::max(a.size(), b.size()));
  Constant y{.shape = shape, .floating = true};
  for (std::int64_t m = 0; m < count * rows; ++m) {
    const float* row = left.reals.data() + m * inner;
    const float* matrix = right.reals.data() + m / rows * inner * columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      double total = 0;
      for (std::int64_t i = 0; i < inner; ++i)
        total += double{row[i]} * double{matrix[i * columns + c]};
      y.reals.push_back(static_cast<float>(total));
    }
  }
  return y;
}

}  // namespace

std::vector<FoldRow> reducing_folds() {
  std::vector<FoldRow> rows{one_output("CumSum", running_sum),
                            one_output("MatMul", matrix_product)};
  for (const Reduction& reduction : kReductions) {
    rows.push_back(
        one_output(reduction.op, [of = &reduction](const OnnxNode& node, const FoldInputs& in) {
          return reduced(*of, node, in);
        }));
  }
  return rows;
}

}  // namespace steelyard::imports
