#include "steelyard/framework/ops/moves/slice.h"

#include <cstdint>

#include <algorithm>

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard {
namespace {

using Axes = std::vector<TakenAxis>;

// A tensor of `value` with x as that part.
Tensor placed(const char* op, const Tensor& x, const Shape& whole, const Axes& axes, double value) {
  const Tensor y = Tensor::full(whole, value, x.dtype(), x.device());
  ops::scatter(op, x, y, ops::part_of(whole, axes));
  return y;
}

class SliceFunction : public Function, public Describes<std::vector<TakenAxis>> {
 public:
  explicit SliceFunction(Axes axes) : axes_(std::move(axes)) {}
  std::string name() const override { return "slice"; }
  Axes described() const override { return axes_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {placed("slice", grad_output, inputs()[0]->shape, axes_, 0)};
  }

 private:
  Axes axes_;
};

class PadFunction : public Function, public Describes<Border> {
 public:
  // Where the input lies in the output.
  PadFunction(Axes inner, double value) : inner_(std::move(inner)), value_(value) {}
  std::string name() const override { return "pad"; }
  Border described() const override {
    Border border{.value = value_};
    for (const TakenAxis& axis : inner_) border.before.push_back(axis.first);
    return border;
  }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {ops::gathered("pad", grad_output, ops::part_of(grad_output.shape(), inner_))};
  }

 private:
  Axes inner_;
  double value_;
};

Axes whole_of(const Shape& shape) {
  Axes axes;
  for (const std::int64_t extent : shape) axes.push_back({0, extent, 1});
  return axes;
}

}  // namespace

ops::Part ops::part_of(const Shape& whole, const Axes& axes) {
  Part part{.shape = {}, .strides = row_major_strides(whole)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    part.shape.push_back(axes[i].count);
    part.first += axes[i].first * part.strides[i];
    part.strides[i] *= axes[i].step;
  }
  return part;
}

void ops::require_inside(const char* op, const Shape& whole, const Axes& axes) {
  const std::string expected = "positions inside of " + shape_string(whole);
  if (axes.size() != whole.size()) fail(op, expected, std::to_string(axes.size()) + " dimensions");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto [first, count, step] = axes[i];
    std::int64_t last = 0;
    const bool ends = count > 0 && !__builtin_mul_overflow(count - 1, step, &last) &&
                      !__builtin_add_overflow(first, last, &last);
    const auto inside = [&](std::int64_t at) { return at >= 0 && at < whole[i]; };
    if (count == 0 && step != 0) continue;
    if (step != 0 && ends && inside(first) && inside(last)) continue;
    fail(op, expected,
         std::to_string(count) + " from " + std::to_string(first) + " on in steps of " +
             std::to_string(step) + " along dimension " + std::to_string(i));
  }
}

void ops::require_border(const char* op, const Shape& x, const std::vector<std::int64_t>& before,
                         const std::vector<std::int64_t>& after) {
  constexpr std::int64_t kMost = INT64_MAX / 4;  // sums of two and a size fit
  for (const auto* border : {&before, &after}) {
    for (const std::int64_t size : *border) {
      if (size < -kMost || size > kMost) {
        fail(op, "borders of at most " + std::to_string(kMost), std::to_string(size));
      }
    }
  }
  if (before.size() == x.size() && after.size() == x.size()) return;
  fail(op, "two numbers for each dimension of " + shape_string(x),
       std::to_string(before.size()) + " and " + std::to_string(after.size()));
}

Variable slice(const Variable& x, const Axes& axes) {
  ops::require_defined("slice", "a tensor", x);
  ops::require_inside("slice", x.shape(), axes);
  if (axes == whole_of(x.shape())) return x;
  Tensor y = ops::gathered("slice", x.value(), ops::part_of(x.shape(), axes));
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<SliceFunction>(axes), {x});
}

Variable pad(const Variable& x, const std::vector<std::int64_t>& before,
             const std::vector<std::int64_t>& after, double value) {
  ops::require_defined("pad", "a tensor", x);
  ops::require_border("pad", x.shape(), before, after);
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
  return record(y, std::make_shared<PadFunction>(inner, value), {part});
}

}  // namespace steelyard
