#include "steelyard/import/constants.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

// Calls f(position in the result, multi-index) for each element of `shape`.
template <typename F>
void for_each_index(const Shape& shape, const F& f) {
  const std::int64_t size = limited_size(shape);
  Positions index(shape.size(), 0);
  for (std::int64_t i = 0; i < size; ++i) {
    f(static_cast<std::size_t>(i), index);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

std::int64_t limited_size(const Shape& shape) {
  std::int64_t size = 1, of_others = 1;  // than 0: strides are products of some of them
  for (const std::int64_t dim : shape) {
    if (dim < 0) refuse("a constant of shape " + shape_string(shape) + " has a negative size");
    if (dim > 0 && of_others > kMostElementsOfAConstant / dim) {
      refuse("a constant of shape " + shape_string(shape) + " is too large");
    }
    if (dim > 0) of_others *= dim;
    size *= dim;
  }
  return size;
}

std::vector<std::int64_t> strides_of(const Shape& shape) {
  limited_size(shape);
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  return strides;
}

std::int64_t grown_size(const Shape& shape, bool floating, std::int64_t like) {
  const std::int64_t size = limited_size(shape);
  if (size > std::max(like, floating ? kMostGrownFloats : kMostGrownIntegers)) {
    refuse("a constant of shape " + shape_string(shape) + " is too large");
  }
  return size;
}

Constant rearranged(const Constant& x, Shape shape, const From& from, std::int64_t like) {
  Constant y{.shape = std::move(shape), .floating = x.floating, .origin = x.origin};
  const auto size =
      static_cast<std::size_t>(grown_size(y.shape, y.floating, std::max(x.size(), like)));
  if (y.floating) {
    y.reals.resize(size);
  } else {
    y.integers.resize(size);
  }
  for_each_index(y.shape, [&](std::size_t i, const Positions& index) {
    const auto at = static_cast<std::size_t>(from(index));
    if (y.floating) {
      y.reals[i] = x.reals[at];
    } else {
      y.integers[i] = x.integers[at];
    }
  });
  return y;
}

namespace {

// The only element of `one`, many times.
Constant filled(const Constant& one, const Shape& shape, std::int64_t like) {
  Constant y{.shape = shape, .floating = one.floating};
  const auto size = static_cast<std::size_t>(grown_size(shape, y.floating, like));
  if (y.floating) {
    y.reals.assign(size, one.reals[0]);
  } else {
    y.integers.assign(size, one.integers[0]);
  }
  return y;
}

}  // namespace

Constant expanded(const Constant& x, const Shape& wanted, std::int64_t like) {
  const Shape shape = broadcast(x.shape, wanted);
  if (x.size() == 1) return filled(x, shape, like);
  const auto strides = strides_of(x.shape);
  const std::size_t added = shape.size() - x.shape.size();
  return rearranged(
      x, shape,
      [&](const Positions& index) {
        std::int64_t from = 0;
        for (std::size_t i = 0; i < x.shape.size(); ++i) {
          if (x.shape[i] != 1) from += index[added + i] * strides[i];
        }
        return from;
      },
      like);
}

std::optional<double> scalar_of(const Constant& constant) {
  if (constant.size() != 1) return std::nullopt;
  if (constant.floating) return constant.reals[0];
  if (constant.integers[0].of_batch) return std::nullopt;
  return static_cast<double>(constant.integers[0].value);
}

std::vector<std::int64_t> integers_of(const Constant& constant, const std::string& what) {
  if (constant.floating) refuse(what + ": expected whole numbers, got floats");
  std::vector<std::int64_t> values;
  for (const Extent& e : constant.integers) {
    if (e.of_batch) refuse(what + ": depends on the batch's size");
    values.push_back(e.value);
  }
  return values;
}

std::size_t axis_of(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    refuse("axis " + std::to_string(axis) + " of " + std::to_string(rank) + " dimensions");
  }
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

void complete_slices(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
                     std::vector<std::int64_t>& axes, std::vector<std::int64_t>& steps) {
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  steps.resize(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size())
    refuse("starts and ends differ");
}

SlicedAxis sliced(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t extent) {
  if (step == 0 || step == std::numeric_limits<std::int64_t>::min()) {
    refuse("a step of " + std::to_string(step));
  }
  if (extent == 0) return {0, 0, step};
  const auto from_begin = [&](std::int64_t at) { return at < 0 ? at + extent : at; };
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? extent : extent - 1;
  const std::int64_t first =
      std::clamp(from_begin(start), step > 0 ? lowest : std::int64_t{0}, highest);
  std::int64_t last = end < -extent && step < 0 ? -1 : from_begin(end);
  last = std::clamp(last, lowest, highest);
  const std::int64_t span = step > 0 ? last - first : first - last;
  const std::int64_t stride = step > 0 ? step : -step;
  return {first, span <= 0 ? 0 : (span - 1) / stride + 1, step};
}

Constant as_floats(const Constant& constant) {
  Constant floats{.shape = constant.shape, .floating = true, .reals = constant.reals};
  constexpr std::int64_t kExact = std::int64_t{1} << 24;
  for (const Extent& e : constant.integers) {
    if (e.of_batch || e.value < -kExact || e.value > kExact)
      refuse("with a whole number that no float holds");
    floats.reals.push_back(static_cast<float>(e.value));
  }
  return floats;
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      refuse("shapes " + shape_string(a) + " and " + shape_string(b) + " do not broadcast");
    }
    shape[shape.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

Constant transposed(const Constant& x, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> sorted = order, all(x.shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) refuse("perm " + shape_string(order) + " is no order of the axes");
  Shape shape;
  for (const std::int64_t axis : order) shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
  const auto strides = strides_of(x.shape);
  return rearranged(x, shape, [&](const Positions& index) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      from += index[i] * strides[static_cast<std::size_t>(order[i])];
    }
    return from;
  });
}

}  // namespace steelyard::imports
