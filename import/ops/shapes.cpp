// Operations that move values: other shapes and orders, parts, borders, joins.
#include <algorithm>
#include <numeric>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"

namespace steelyard::imports {
namespace {

// Input 0 under another shape: it is held in the order `from` of its dimensions, the output in the
// order `order` of the new ones.
void reshaped_in_order(Translator& t, const ExtentShape& to, const Order& from,
                       const Order& order) {
  ExtentShape held;
  for (const std::size_t axis : order) held.push_back(to[axis]);
  give_in_order(t, t.add("Reshape", {t.held_in(0, from)}, NewShape{open_sizes(held)}), to, order);
}

// An order for a value that has another dimension than the batch first: the batch, and the others
// in ONNX's order.
Order batch_first(const ImportedValue& value) {
  Order order = value.order;
  if (!order.empty()) std::sort(order.begin() + 1, order.end());
  return order;
}

// Where only dimensions change that are held in ONNX's order, after all others, the order of the
// output; else nothing.
Order order_of_changed_end(const ExtentShape& shape, const Order& held, const ExtentShape& to) {
  std::size_t kept = held.size();
  while (kept > 0 && held[kept - 1] == kept - 1) --kept;
  if (kept == 0 || to.size() < kept ||
      !std::equal(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(kept), shape.begin())) {
    return {};
  }
  Order order(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(kept));
  for (std::size_t axis = kept; axis < to.size(); ++axis) order.push_back(axis);
  return order;
}

// A file with a fixed batch describes one batch, not how several samples lie in a larger one: no
// element may come into another sample's place.
void keep_samples_apart(const ExtentShape& from, ExtentShape& to) {
  std::int64_t before = 1;  // elements, in each of which all samples follow one another
  for (const Extent& extent : from) {
    before *= extent.of_batch ? extent.outside : extent.value;
    if (extent.of_batch) break;
  }
  if (before == 0) return;  // of no elements
  for (Extent& extent : to) {
    const bool fits = extent.of_batch ? extent.value % before == 0
                                      : extent.value > 0 && before % extent.value == 0;
    if (!fits) {
      refuse("from " + to_string(from) + " to " + to_string(to) +
             " would mix the samples of a batch: the file has a fixed batch; export it with a free "
             "one");
    }
    if (extent.of_batch) {
      extent.outside = static_cast<std::uint32_t>(before);  // <= kMostElements
      return;
    }
    before /= extent.value;
  }
}

// Input 0 under another shape of as many elements.
void reshaped(Translator& t, ExtentShape to) {
  const ImportedValue& in = t.input(0);
  const ExtentShape from = in.shape;
  if (const Extent before = elements(from), after = elements(to); before != after) {
    const bool drops_batch = t.fixed_batch() && before.of_batch && !after.of_batch;
    refuse("cannot reshape " + to_string(from) + " to " + to_string(to) +
           (drops_batch ? ": expected the batch to stay, which the file fixes" : ""));
  }
  if (t.fixed_batch() && elements(from).of_batch) keep_samples_apart(from, to);
  if (const auto joined = t.fixed_batch() ? std::nullopt : take_batch_apart(from, to)) {
    reshaped(t, to);
    return t.set_joined(joined);
  }
  if (from == to) {
    t.give(in);
    return t.set_joined(std::nullopt);
  }
  for (const Order& held : {in.order, batch_first(in)}) {
    const Order order = order_of_changed_end(from, held, to);
    if (!order.empty()) return reshaped_in_order(t, to, held, order);
  }
  const bool flattens = to.size() == 2 && to[0] == from[0];
  if (flattens && (from.size() == 3 || from.size() == 4) && in.channels_last) {
    const std::string row = t.averaged_row(0);
    return t.give(row.empty() ? t.add("Flatten", {t.image(0)}) : row, to, false);
  }
  t.give(t.add("Reshape", {t.plain(0)}, NewShape{open_sizes(to)}), to, false);
}

void reshape(Translator& t) {
  const ExtentShape from = onnx_shape(t.input(0));
  const Constant& shape = t.constant(1, "shape");
  if (shape.floating) refuse("its shape holds floats");
  ExtentShape to = shape.integers;
  const bool keeps_zero = t.node().integer("allowzero", 0) != 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == Extent{0} && !keeps_zero) {
      if (i >= from.size()) refuse("shape: 0 after the input's dimensions");
      to[i] = from[i];
    }
  }
  // A file with a fixed batch says it in its shapes.
  if (t.fixed_batch() && !from.empty() && from[0] == Extent{1, true} && !to.empty() &&
      to[0] == Extent{*t.fixed_batch()}) {
    to[0] = from[0];
  }
  const auto open = std::find(to.begin(), to.end(), Extent{-1});
  if (open != to.end()) {
    *open = {1};
    const Extent all = elements(from), known = elements(to);
    const bool fits =
        known.value > 0 && all.value % known.value == 0 && (all.of_batch || !known.of_batch);
    if (!fits) refuse("cannot reshape " + to_string(from) + " to " + to_string(shape.integers));
    *open = {all.value / known.value, all.of_batch && !known.of_batch};
  }
  reshaped(t, to);
}

void flatten(Translator& t) {
  const ExtentShape from = t.input(0).shape;
  const std::int64_t axis = t.node().integer("axis", 1);
  const std::size_t at = axis == std::ssize(from) ? from.size() : axis_of(axis, from.size());
  const auto middle = from.begin() + static_cast<std::ptrdiff_t>(at);
  reshaped(t, {elements({from.begin(), middle}), elements({middle, from.end()})});
}

// The order in which input 0 is held once some of its dimensions are gone and others of size 1 were
// added: `from` is the dimension that each of the new ones was.
constexpr std::size_t kAdded = SIZE_MAX;
Order order_with_ones(const ImportedValue& in, const Order& from) {
  Order order;
  for (const std::size_t axis : in.order) {
    const auto at = std::find(from.begin(), from.end(), axis);
    if (at != from.end()) order.push_back(static_cast<std::size_t>(at - from.begin()));
  }
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] != kAdded) continue;
    const auto after = std::find_if(order.begin() + (order.empty() ? 0 : 1), order.end(),
                                    [&](std::size_t other) { return other > axis; });
    order.insert(after, axis);
  }
  return order;
}

// Where every axis keeps its place among the others, a held value keeps its order.
void with_ones(Translator& t, const ExtentShape& to, const Order& from, bool keeps_channels) {
  const ImportedValue& in = t.input(0);
  if (!in.order.empty()) return reshaped_in_order(t, to, in.order, order_with_ones(in, from));
  const bool stays = in.channels_last && keeps_channels && to.size() > 2;
  if (!stays) return reshaped(t, to);
  ExtentShape held;
  for (const std::size_t axis : held_order(to.size(), true)) held.push_back(to[axis]);
  t.give(t.add("Reshape", {t.image(0)}, NewShape{open_sizes(held)}), to, true);
}

void squeeze(Translator& t) {
  const ExtentShape from = t.input(0).shape;
  const std::vector<std::int64_t> axes = t.attribute_or_input("axes", 1);
  const auto is_batch = [](const Extent& e) { return e.of_batch && e.value == 1; };
  if (axes.empty() && t.fixed_batch() == 1 && std::any_of(from.begin(), from.end(), is_batch)) {
    refuse("expected axes: without them it takes away the batch, which is 1 in the file, too");
  }
  std::vector<bool> removed(from.size(), false);
  for (const std::int64_t axis : axes) removed[axis_of(axis, from.size())] = true;
  ExtentShape to;
  Order kept;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (axes.empty() && from[i] == Extent{1}) removed[i] = true;
    if (removed[i] && from[i] != Extent{1}) refuse("cannot squeeze " + to_string(from));
    if (removed[i]) continue;
    to.push_back(from[i]);
    kept.push_back(i);
  }
  with_ones(t, to, kept, removed.size() > 1 && !removed[0] && !removed[1]);
}

void unsqueeze(Translator& t) {
  const ExtentShape from = t.input(0).shape;
  const std::vector<std::int64_t> axes = t.attribute_or_input("axes", 1);
  const std::size_t rank = from.size() + axes.size();
  std::vector<bool> added(rank, false);
  for (const std::int64_t axis : axes) added[axis_of(axis, rank)] = true;
  if (static_cast<std::size_t>(std::count(added.begin(), added.end(), true)) != axes.size()) {
    refuse("axes " + shape_string(axes));
  }
  ExtentShape to;
  Order before;
  std::size_t next = 0;
  for (const bool one : added) {
    to.push_back(one ? Extent{1} : from[next]);
    before.push_back(one ? kAdded : next++);
  }
  with_ones(t, to, before, rank > 2 && !added[0] && !added[1]);
}

void transpose(Translator& t) {
  const ImportedValue& in = t.input(0);
  const ExtentShape from = in.shape;
  const std::vector<std::int64_t> perm = perm_of(t.node(), from.size());
  std::vector<std::int64_t> sorted = perm, all(from.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) refuse("perm " + shape_string(perm) + " is no order of " + to_string(from));
  ExtentShape to;
  for (const std::int64_t axis : perm) to.push_back(from[static_cast<std::size_t>(axis)]);
  // What the input's held dimensions are in the output.
  Order order;
  for (const std::size_t axis : held_order(in)) {
    const auto at = std::find(perm.begin(), perm.end(), static_cast<std::int64_t>(axis));
    order.push_back(static_cast<std::size_t>(at - perm.begin()));
  }
  const bool batch_moves =
      !to.empty() && to[0] != Extent{1, true} && to[order[0]] == Extent{1, true};
  const bool known = order == held_order(to.size(), false) ||
                     (to.size() > 2 && order == held_order(to.size(), true));
  const std::string node = t.as_held(0);
  if (known || batch_moves) return give_in_order(t, node, to, order);
  std::vector<std::int64_t> held;  // of the output as ONNX has it
  for (std::size_t axis = 0; axis < to.size(); ++axis) {
    held.push_back(std::find(order.begin(), order.end(), axis) - order.begin());
  }
  t.give(t.add("Permute", {node}, AxisOrder{held}), to, false);
}

void expand(Translator& t) {
  const ImportedValue& in = t.input(0);
  const ExtentShape from = in.shape;
  const Constant& wanted = t.constant(1, "shape");
  if (wanted.floating) refuse("its shape holds floats");
  ExtentShape sizes = wanted.integers;
  if (t.fixed_batch() && sizes.size() == from.size() && !from.empty() &&
      from[0] == Extent{1, true} && sizes[0] == Extent{*t.fixed_batch()}) {
    sizes[0] = from[0];
  }
  const ExtentShape to = broadcast(from, sizes);
  if (to == from) return t.give(in);
  const std::size_t added = to.size() - from.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool own = i >= added && from[i - added] == to[i];
    if (to[i].of_batch && !own) refuse("to a size that depends on the batch's");
  }
  const bool last = added == 0 && in.channels_last;
  ExtentShape held;
  for (const std::size_t axis : held_order(to.size(), last)) held.push_back(to[axis]);
  t.give(t.add("Expand", {t.held(0, last)}, NewShape{open_sizes(held)}), to, last);
}

std::string sliced_node(Translator& t, std::string node, std::size_t at, const SlicedAxis& taken) {
  return t.add("Slice", {std::move(node)},
               SliceOptions{static_cast<std::int64_t>(at), {taken.first, taken.count, taken.step}});
}

void slice(Translator& t) {
  const auto starts = t.attribute_or_input("starts", 1), ends = t.attribute_or_input("ends", 2);
  auto axes = t.attribute_or_input("axes", 3);
  const Constant* given = t.optional_constant(4, "steps");
  auto steps = given == nullptr ? std::vector<std::int64_t>{} : integers_of(*given, "steps");
  complete_slices(starts, ends, axes, steps);
  ExtentShape shape = t.input(0).shape;
  std::string node = t.as_held(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = axis_of(axes[i], shape.size());
    constexpr std::int64_t kEverything = 1'000'000'000;  // larger than a batch
    if (shape[axis].of_batch && starts[i] == 0 && steps[i] == 1 && ends[i] >= kEverything) continue;
    const std::int64_t extent = fixed(shape[axis]);
    const SlicedAxis taken = sliced(starts[i], ends[i], steps[i], extent);
    if (taken.count < 1) refuse("its result is empty");
    const bool takes_all = taken.first == 0 && taken.count == extent && taken.step == 1;
    // But not of larger images, which its size says.
    const bool is_bound = (ends[i] > extent && ends[i] < kEverything) ||
                          (starts[i] < -extent && starts[i] > -kEverything);
    if (takes_all && !(t.any_size() && is_bound)) continue;
    node = sliced_node(t, node, held_axis(t.input(0), axis), taken);
    shape[axis] = {taken.count};
  }
  t.give_as(0, node, shape);
}

void split(Translator& t) {
  const ExtentShape shape = t.input(0).shape;
  const std::size_t axis = axis_of(t.node().integer("axis", 0), shape.size());
  const std::int64_t extent = fixed(shape[axis]);
  std::vector<std::int64_t> sizes = t.attribute_or_input("split", 1);
  const auto count = static_cast<std::int64_t>(t.node().outputs.size());
  if (sizes.empty()) {
    const std::int64_t each = (extent + count - 1) / count;
    sizes.assign(static_cast<std::size_t>(count), each);
    sizes.back() = extent - each * (count - 1);
  }
  const auto is_part = [&](std::int64_t size) { return size > 0 && size <= extent; };
  const bool fits = std::ssize(sizes) == count &&
                    std::all_of(sizes.begin(), sizes.end(), is_part) &&
                    std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == extent;
  if (!fits) refuse("parts " + shape_string(sizes) + " of " + std::to_string(extent));
  if (sizes.size() == 1) return t.give(t.input(0));
  const ImportedValue in = t.input(0);
  const std::string node = t.as_held(0);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ExtentShape part = shape;
    part[axis] = {sizes[i]};
    t.give({.shape = part,
            .node = sliced_node(t, node, held_axis(in, axis), {first, sizes[i], 1}),
            .channels_last = in.channels_last,
            .order = in.order},
           i);
    first += sizes[i];
  }
}

}  // namespace

std::vector<std::int64_t> perm_of(const OnnxNode& transpose, std::size_t rank) {
  std::vector<std::int64_t> perm = transpose.integers("perm");
  if (perm.empty()) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  return perm;
}

void give_in_order(Translator& t, const std::string& node, const ExtentShape& shape,
                   const Order& order) {
  if (order == held_order(shape.size(), false)) return t.give(node, shape, false);
  if (shape.size() > 2 && order == held_order(shape.size(), true)) return t.give(node, shape, true);
  t.give({.shape = shape, .node = node, .order = order});
}

std::string picked(Translator& t, const std::string& node, std::size_t axis, std::size_t rank,
                   const std::vector<std::int64_t>& positions) {
  constexpr std::size_t kMostParts = 256;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < positions.size();) {
    // As many as follow each other in steps of one size.
    std::size_t end = i + 1;
    const std::int64_t step = end < positions.size() ? positions[end] - positions[i] : 1;
    while (step != 0 && end < positions.size() && positions[end] - positions[end - 1] == step) {
      ++end;
    }
    const auto count = static_cast<std::int64_t>(end - i);
    parts.push_back(
        sliced_node(t, node, axis, {positions[i], count, count > 1 && step != 0 ? step : 1}));
    i = end;
    if (parts.size() > kMostParts) {
      refuse("of more than " + std::to_string(kMostParts) + " runs of positions");
    }
  }
  if (parts.empty()) refuse("its result is empty");
  if (parts.size() == 1) return parts[0];
  if (axis + 1 == rank) return t.add("Cat", parts);
  return t.add("CatAxis", parts, JoinedAxis{static_cast<std::int64_t>(axis)});
}

std::vector<OperationRow> shape_operations() {
  constexpr auto kMoved = WholeNumbers::kMoved;
  return {
      {"Reshape", reshape,
       "shapes that are computed from values, shapes of a file with a fixed batch that would mix "
       "samples",
       "", kMoved},
      {"Flatten", flatten, "", "", kMoved},
      {"Squeeze", squeeze, "without axes in a file with a fixed batch of 1", "", kMoved},
      {"Unsqueeze", unsqueeze, "", "", kMoved},
      {"Transpose", transpose, "", "", kMoved},
      {"Expand", expand, "shapes that are computed from values", "", kMoved},
      {"Slice", slice, "starts and ends that are computed from values", "", kMoved},
      {"Split", split, "", "", kMoved},
  };
}

}  // namespace steelyard::imports
