#include "steelyard/framework/ops/slice.h"

#include <algorithm>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/strided.h"

namespace steelyard {
namespace {

using Axes = std::vector<TakenAxis>;

// A part of a dense array: the index of its first element, and how its elements follow.
struct Part {
  Shape shape;
  std::int64_t first = 0;
  kernels::StridedIndex at;
};

Part part_of(const char* op, const Shape& whole, const Axes& axes) {
  Part part;
  std::vector<std::int64_t> strides = ops::row_major_strides(whole);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    part.shape.push_back(axes[i].count);
    part.first += axes[i].first * strides[i];
    strides[i] *= axes[i].step;
  }
  part.at = ops::strided_index(op, part.shape, strides);
  return part;
}

// Copies between the part and a dense array of its shape.
void copy(const char* op, const Tensor& from, const Part* of_from, const Tensor& to,
          const Part* of_to) {
  const Part& part = of_from != nullptr ? *of_from : *of_to;
  const std::int64_t n = shape_size(part.shape);
  if (n == 0) return;
  const auto dense = ops::strided_index(op, part.shape, ops::row_major_strides(part.shape));
  visit_floating(to.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(to.device(),
        kernels::CopyStrided<T>{.n = n,
                                .x = from.data<T>() + (of_from != nullptr ? of_from->first : 0),
                                .from = of_from != nullptr ? of_from->at : dense,
                                .y = to.data<T>() + (of_to != nullptr ? of_to->first : 0),
                                .to = of_to != nullptr ? of_to->at : dense});
  });
}

Tensor taken(const char* op, const Tensor& x, const Axes& axes) {
  const Part part = part_of(op, x.shape(), axes);
  Tensor y = Tensor::empty(part.shape, x.dtype(), x.device());
  copy(op, x, &part, y, nullptr);
  return y;
}

// A tensor of `value` with x as that part.
Tensor placed(const char* op, const Tensor& x, const Shape& whole, const Axes& axes, double value) {
  const Tensor y = Tensor::full(whole, value, x.dtype(), x.device());
  const Part part = part_of(op, whole, axes);
  copy(op, x, nullptr, y, &part);
  return y;
}

class SliceFunction : public Function {
 public:
  explicit SliceFunction(Axes axes) : axes_(std::move(axes)) {}
  std::string name() const override { return "slice"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {placed("slice", grad_output, inputs()[0]->shape, axes_, 0)};
  }

 private:
  Axes axes_;
};

class PadFunction : public Function {
 public:
  // Where the input lies in the output.
  explicit PadFunction(Axes inner) : inner_(std::move(inner)) {}
  std::string name() const override { return "pad"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {taken("pad", grad_output, inner_)};
  }

 private:
  Axes inner_;
};

Axes whole_of(const Shape& shape) {
  Axes axes;
  for (const std::int64_t extent : shape) axes.push_back({0, extent, 1});
  return axes;
}

}  // namespace

Variable slice(const Variable& x, const Axes& axes) {
  ops::require_defined("slice", "a tensor", x);
  bool fits = axes.size() == x.shape().size();
  for (std::size_t i = 0; fits && i < axes.size(); ++i) {
    const auto [first, count, step] = axes[i];
    const std::int64_t last = first + (count - 1) * step;
    const auto inside = [&](std::int64_t at) { return at >= 0 && at < x.shape()[i]; };
    fits = count >= 0 && step != 0 && (count == 0 || (inside(first) && inside(last)));
  }
  if (!fits) ops::fail("slice", "positions inside of", shape_string(x.shape()));
  if (axes == whole_of(x.shape())) return x;
  Tensor y = taken("slice", x.value(), axes);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SliceFunction>(axes), {x});
}

Variable pad(const Variable& x, const std::vector<std::int64_t>& before,
             const std::vector<std::int64_t>& after, double value) {
  ops::require_defined("pad", "a tensor", x);
  if (before.size() != x.shape().size() || after.size() != x.shape().size()) {
    ops::fail("pad", "two numbers for each dimension of " + shape_string(x.shape()),
              std::to_string(before.size()) + " and " + std::to_string(after.size()));
  }
  Axes kept = whole_of(x.shape()), inner;
  Shape whole;
  for (std::size_t i = 0; i < before.size(); ++i) {  // what is cut off goes first
    kept[i].first = std::max<std::int64_t>(-before[i], 0);
    kept[i].count -= kept[i].first + std::max<std::int64_t>(-after[i], 0);
    if (kept[i].count < 0) ops::fail("pad", "a border of " + shape_string(x.shape()), "less");
    const std::int64_t first = std::max<std::int64_t>(before[i], 0);
    inner.push_back({first, kept[i].count, 1});
    whole.push_back(first + kept[i].count + std::max<std::int64_t>(after[i], 0));
  }
  const Variable part = slice(x, kept);
  if (whole == part.shape()) return part;
  Tensor y = placed("pad", part.value(), whole, inner, value);
  if (!should_record({part})) return Variable(y);
  return record(y, std::make_shared<PadFunction>(inner), {part});
}

}  // namespace steelyard
