// Other shapes and parts of constants, joins of several, and new ones.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "steelyard/import/folds/folds.h"

namespace steelyard::imports {
namespace {

Constant reshaped(const Constant& x, Shape shape) {
  if (limited_size(shape) != x.size()) {
    refuse("cannot reshape " + shape_string(x.shape) + " to " + shape_string(shape));
  }
  Constant y = x;
  y.shape = std::move(shape);
  return y;
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

Constant reshape(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  Shape shape = integers_of(required(in, 1), "shape");
  std::int64_t* open = nullptr;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && node.integer("allowzero", 0) == 0 && i < x.shape.size()) {
      shape[i] = x.shape[i];
    }
    if (shape[i] != -1) continue;
    if (open != nullptr) refuse("two sizes of its shape are -1");
    open = &shape[i];
  }
  if (open != nullptr) {
    *open = 1;
    const std::int64_t known = limited_size(shape);
    *open = known > 0 ? x.size() / known : 0;
  }
  return reshaped(x, shape);
}

Constant transpose(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  std::vector<std::int64_t> order(x.shape.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return transposed(x, node.integers("perm", order));
}

Constant concat(const OnnxNode& node, const FoldInputs& in) {
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

Constant gather(const OnnxNode& node, const FoldInputs& in) {
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

// Element by element, at a position of one axis that the indices say.
Constant gather_elements(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const Constant& at = required(in, 1);
  const std::size_t axis = axis_of(node.integer("axis", 0), x.shape.size());
  bool fits = at.shape.size() == x.shape.size();
  for (std::size_t i = 0; fits && i < x.shape.size(); ++i) {
    fits = i == axis || at.shape[i] <= x.shape[i];
  }
  if (!fits) refuse("indices " + shape_string(at.shape) + " of " + shape_string(x.shape));
  std::vector<std::int64_t> places = integers_of(at, "indices");
  for (std::int64_t& place : places) {
    if (place < 0) place += x.shape[axis];
    if (place < 0 || place >= x.shape[axis]) refuse("an index is outside of its axis");
  }
  const auto strides = strides_of(x.shape), of_indices = strides_of(at.shape);
  return rearranged(x, at.shape, [&](const Positions& index) {
    std::int64_t from = 0, place = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      place += index[i] * of_indices[i];
      if (i != axis) from += index[i] * strides[i];
    }
    return from + places[static_cast<std::size_t>(place)] * strides[axis];
  });
}

Constant slice(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const bool old = node.has("starts");
  const auto list = [&](const char* name, std::size_t i) {
    if (old) return node.integers(name);
    const Constant* input = given(in, i);
    return input == nullptr ? std::vector<std::int64_t>{} : integers_of(*input, name);
  };
  const std::vector<std::int64_t> starts = list("starts", 1), ends = list("ends", 2);
  std::vector<std::int64_t> axes = list("axes", 3), steps = list("steps", 4);
  complete_slices(starts, ends, axes, steps);
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

Constant constant_of_shape(const OnnxNode& node, const FoldInputs& in) {
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
    return list_of(*list);
  }
  if (const auto* reals = value_of<std::vector<float>>(node, "value_floats")) {
    return {{std::ssize(*reals)}, true, *reals, {}};
  }
  refuse("its value is of an unsupported kind");
}

Constant range_of_integers(const FoldInputs& in) {
  std::int64_t numbers[3];  // first, limit, step
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<std::int64_t> one = integers_of(required(in, i), "its limits");
    if (one.size() != 1) refuse("expected numbers");
    numbers[i] = one[0];
  }
  const auto [first, limit, step] = numbers;
  if (step == 0) refuse("a step of 0");
  const double span = static_cast<double>(limit) - static_cast<double>(first);
  if (std::abs(span / static_cast<double>(step)) > kMostGrownIntegers) {
    refuse("a constant that is too large");
  }
  Constant list{.shape = {0}};
  for (std::int64_t at = first; step > 0 ? at < limit : at > limit;) {
    list.integers.push_back({at});
    if (__builtin_add_overflow(at, step, &at)) break;  // past the limit
  }
  list.shape[0] = std::ssize(list.integers);
  return list;
}

// Added up one after another, as ONNX Runtime does.
Constant range_of_floats(const FoldInputs& in) {
  float numbers[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!required(in, i).floating || in[i]->size() != 1) refuse("expected numbers of one type");
    numbers[i] = in[i]->reals[0];
  }
  const auto [first, limit, step] = numbers;
  if (!std::isfinite(limit - first) || !std::isfinite(step)) refuse("expected finite numbers");
  if (step == 0) refuse("a step of 0");
  const double count = std::max(0.0, std::ceil(double{limit - first} / double{step}));
  if (count > static_cast<double>(kMostGrownIntegers)) refuse("a constant that is too large");
  Constant list{.shape = {static_cast<std::int64_t>(count)}, .floating = true};
  float at = first;
  for (std::int64_t i = 0; i < list.shape[0]; ++i, at += step) list.reals.push_back(at);
  return list;
}

Constant range(const OnnxNode&, const FoldInputs& in) {
  return required(in, 0).floating ? range_of_floats(in) : range_of_integers(in);
}

Constant flatten(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::int64_t axis = node.integer("axis", 1), rank = std::ssize(x.shape);
  const auto middle =
      x.shape.begin() +
      static_cast<std::ptrdiff_t>(axis == rank ? x.shape.size() : axis_of(axis, x.shape.size()));
  return reshaped(x,
                  {limited_size({x.shape.begin(), middle}), limited_size({middle, x.shape.end()})});
}

// --- parts and borders

std::vector<Constant> split(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::size_t axis = axis_of(node.integer("axis", 0), x.shape.size());
  const std::int64_t extent = x.shape[axis], count = std::ssize(node.outputs);
  std::vector<std::int64_t> sizes = node.integers("split");
  if (const Constant* list = given(in, 1)) sizes = integers_of(*list, "split");
  if (sizes.empty() && count > 0) {
    const std::int64_t each = (extent + count - 1) / count;
    sizes.assign(static_cast<std::size_t>(count), each);
    sizes.back() = extent - each * (count - 1);
  }
  const auto strides = strides_of(x.shape);
  std::vector<Constant> parts;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > extent - first) refuse("parts that do not fit");
    Shape shape = x.shape;
    shape[axis] = size;
    parts.push_back(rearranged(x, shape, [&](const Positions& index) {
      std::int64_t from = first * strides[axis];
      for (std::size_t i = 0; i < index.size(); ++i) from += index[i] * strides[i];
      return from;
    }));
    first += size;
  }
  if (first != extent) refuse("parts that do not fit");
  return parts;
}

// x with one more element at its end, which moves take for what is outside of it.
Constant with_element(Constant x, const Constant& element) {
  if (element.floating != x.floating || element.size() != 1) refuse("expected a value of its type");
  x.reals.insert(x.reals.end(), element.reals.begin(), element.reals.end());
  x.integers.insert(x.integers.end(), element.integers.begin(), element.integers.end());
  return x;
}

Constant number_like(const Constant& x, float value) {
  if (x.floating) return {.shape = {}, .floating = true, .reals = {value}};
  return {.shape = {}, .integers = {{static_cast<std::int64_t>(value)}}};
}

Constant pad(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  if (node.text("mode", "constant") != "constant") refuse("a mode other than constant");
  std::vector<std::int64_t> pads = node.integers("pads"), axes(x.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (const Constant* list = given(in, 1)) pads = integers_of(*list, "pads");
  if (const Constant* list = given(in, 3)) axes = integers_of(*list, "axes");
  if (pads.size() != 2 * axes.size()) refuse("pads " + shape_string(pads));
  Shape shape = x.shape, before(x.shape.size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = axis_of(axes[i], x.shape.size());
    const std::int64_t behind = pads[i + axes.size()];
    for (const std::int64_t size : {pads[i], behind}) {
      if (size < 0 || size > kMostElementsOfAConstant) refuse("pads " + shape_string(pads));
    }
    before[axis] = pads[i];
    shape[axis] += pads[i] + behind;
  }
  const Constant* value = given(in, 2);
  const Constant number = number_like(x, node.real("value", 0));
  const auto strides = strides_of(x.shape);
  return rearranged(with_element(x, value == nullptr ? number : *value), shape,
                    [&](const Positions& index) {
                      std::int64_t from = 0;
                      for (std::size_t i = 0; i < index.size(); ++i) {
                        const std::int64_t at = index[i] - before[i];
                        if (at < 0 || at >= x.shape[i]) return x.size();
                        from += at * strides[i];
                      }
                      return from;
                    });
}

Constant tile(const OnnxNode&, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::vector<std::int64_t> repeats = integers_of(required(in, 1), "repeats");
  if (repeats.size() != x.shape.size()) refuse("repeats " + shape_string(repeats));
  Shape shape = x.shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (__builtin_mul_overflow(shape[i], repeats[i], &shape[i])) refuse("too large");
  }
  const auto strides = strides_of(x.shape);
  return rearranged(x, shape, [&](const Positions& index) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < index.size(); ++i) from += index[i] % x.shape[i] * strides[i];
    return from;
  });
}

// Zeros below or above a diagonal of the last two dimensions.
Constant triangle(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  const std::size_t rank = x.shape.size();
  if (rank < 2) refuse("of fewer than two dimensions");
  const bool upper = node.integer("upper", 1) != 0;
  const Constant* k = given(in, 1);
  if (k != nullptr && k->size() != 1) refuse("k: expected one number");
  const std::int64_t diagonal = k == nullptr ? 0 : integers_of(*k, "k")[0];
  const auto strides = strides_of(x.shape);
  return rearranged(with_element(x, number_like(x, 0)), x.shape, [&](const Positions& index) {
    const std::int64_t distance = index[rank - 1] - index[rank - 2];
    if (upper ? distance < diagonal : distance > diagonal) return x.size();
    std::int64_t from = 0;
    for (std::size_t i = 0; i < rank; ++i) from += index[i] * strides[i];
    return from;
  });
}

}  // namespace

ShapePart shape_part(const OnnxNode& node, std::int64_t rank) {
  const auto position = [&](const char* name, std::int64_t otherwise) {
    const std::int64_t at = node.integer(name, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t begin = position("start", 0);
  return {begin, std::max(begin, position("end", rank))};
}

std::vector<FoldRow> moving_folds() {
  return {
      one_output("Constant",
                 [](const OnnxNode& node, const FoldInputs&) { return constant(node); }),
      one_output("Identity", [](const OnnxNode&, const FoldInputs& in) { return required(in, 0); }),
      one_output("Reshape", reshape),
      one_output("Transpose", transpose),
      one_output("Concat", concat),
      one_output("Gather", gather),
      one_output("GatherElements", gather_elements),
      one_output("Slice", slice),
      one_output("Unsqueeze",
                 [](const OnnxNode& node, const FoldInputs& in) {
                   const Constant& x = required(in, 0);
                   return reshaped(x, unsqueezed(x.shape, axes_of(node, in)));
                 }),
      one_output("Squeeze",
                 [](const OnnxNode& node, const FoldInputs& in) {
                   const Constant& x = required(in, 0);
                   return reshaped(x, squeezed(x.shape, axes_of(node, in)));
                 }),
      one_output("Expand",
                 [](const OnnxNode&, const FoldInputs& in) {
                   return expanded(required(in, 0), integers_of(required(in, 1), "shape"));
                 }),
      one_output("ConstantOfShape", constant_of_shape),
      one_output("Shape",
                 [](const OnnxNode& node, const FoldInputs& in) {
                   const Shape& shape = required(in, 0).shape;
                   const auto part = shape_part(node, std::ssize(shape));
                   return list_of({shape.begin() + part.first, shape.begin() + part.end});
                 }),
      one_output("Size",
                 [](const OnnxNode&, const FoldInputs& in) {
                   const std::int64_t size = limited_size(required(in, 0).shape);
                   return Constant{.shape = {}, .integers = {{size}}};
                 }),
      one_output("Range", range),
      one_output("Flatten", flatten),
      {"Split", split},
      one_output("Pad", pad),
      one_output("Tile", tile),
      one_output("Trilu", triangle),
  };
}

}  // namespace steelyard::imports
