// Reductions over dimensions, and running sums.
#include <optional>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"

namespace steelyard::imports {
namespace {

// Whether a held value's dimensions without those dropped are in that order.
bool leaves_order(const ExtentShape& from, const std::vector<bool>& dropped, bool last,
                  bool output_last) {
  std::vector<std::size_t> index(from.size(), 0);  // of what is left, in ONNX's order
  std::size_t left = 0;
  for (std::size_t i = 0; i < from.size(); ++i) index[i] = dropped[i] ? 0 : left++;
  if (output_last && left < 3) return false;
  std::vector<std::size_t> order;
  for (const std::size_t axis : held_order(from.size(), last)) {
    if (!dropped[axis]) order.push_back(index[axis]);
  }
  return order == held_order(left, output_last);
}

using Step = std::string (*)(Translator&, const std::string&);

// The dimensions that a reduction drops, or keeps as 1.
struct Reduced {
  std::vector<bool> axes;
  ExtentShape to;
  bool keep = true;
};

// Nothing where the node leaves its input as it is.
std::optional<Reduced> reduced_by(Translator& t, bool of_itself) {
  const ExtentShape from = t.input(0).shape;
  const std::vector<std::int64_t> axes = t.attribute_or_input("axes", 1);
  if (axes.empty()) {
    const bool nothing = t.node().integer("noop_with_empty_axes", 0) != 0;
    if (nothing && !of_itself) refuse("over no dimension");
    if (nothing) return std::nullopt;
    refuse("over all dimensions, the batch too");
  }
  Reduced reduced{.axes = std::vector<bool>(from.size(), false),
                  .to = {},
                  .keep = t.node().integer("keepdims", 1) != 0};
  for (const std::int64_t axis : axes) reduced.axes[axis_of(axis, from.size())] = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (reduced.axes[i]) fixed(from[i]);
    if (!reduced.axes[i]) reduced.to.push_back(from[i]);
    if (reduced.axes[i] && reduced.keep) reduced.to.push_back({1});
  }
  return reduced;
}

// Adds the reduction `type`, after the step `before` and before the step `after` where they are not
// null.
void reduce(Translator& t, const char* type, Step before = nullptr, Step after = nullptr) {
  const ImportedValue& in = t.input(0);
  const ExtentShape from = in.shape;
  const auto found = reduced_by(t, before == nullptr && after == nullptr);
  if (!found) return t.give(in);
  const auto& [reduced, to, keep] = *found;
  const bool image = from.size() == 4 && reduced == std::vector<bool>{false, false, true, true};
  if (image && type == std::string("ReduceMean")) {
    if (keep)
      return t.give({.shape = to,
                     .channels_last = true,
                     .averaged = t.node().input(0),
                     .label = t.node().label()});
    return t.give(t.add("GlobalAvgPool", {t.image(0)}), to, false);
  }
  bool last = in.channels_last, output_last = last;
  if (!keep) {
    output_last = leaves_order(from, reduced, last, true);
    if (!output_last && !leaves_order(from, reduced, last, false)) last = false;
  }
  std::vector<std::int64_t> held;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (reduced[i]) held.push_back(static_cast<std::int64_t>(held_axis(i, from.size(), last)));
  }
  std::string node = t.held(0, last);
  if (before != nullptr) node = before(t, node);
  node = t.add(type, {node}, ReduceOptions{held, keep});
  t.give(after == nullptr ? node : after(t, node), to, output_last);
}

std::string square(Translator& t, const std::string& x) { return t.add("Mul", {x, x}); }
std::string absolute(Translator& t, const std::string& x) { return t.add("Abs", {x}); }
std::string root(Translator& t, const std::string& x) { return t.add("Sqrt", {x}); }
std::string logarithm(Translator& t, const std::string& x) { return t.add("Log", {x}); }

// A node of the held dimensions `axes`, which stay with size 1.
std::string kept(Translator& t, const char* type, const std::string& node,
                 const std::vector<std::int64_t>& axes) {
  return t.add(type, {node}, ReduceOptions{axes, true});
}

// Declares the output of a node that has every reduced dimension as 1.
void give_kept(Translator& t, const Reduced& reduced, std::string node) {
  if (!reduced.keep) node = t.add("Reshape", {node}, NewShape{open_sizes(reduced.to)});
  t.give(node, reduced.to, false);
}

// Less the largest one, so that no exponential is infinite.
void reduce_log_sum_exp(Translator& t) {
  const auto reduced = reduced_by(t, false);
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < reduced->axes.size(); ++i) {
    if (reduced->axes[i]) axes.push_back(static_cast<std::int64_t>(i));
  }
  const std::string x = t.plain(0), largest = kept(t, "ReduceMax", x, axes);
  const std::string sum = kept(t, "ReduceSum", t.add("Exp", {t.add("Sub", {x, largest})}), axes);
  give_kept(t, *reduced, t.add("Add", {t.add("Log", {sum}), largest}));
}

// Halves of a dimension are multiplied until one element is left.
void reduce_prod(Translator& t) {
  const auto reduced = reduced_by(t, true);
  if (!reduced) return t.give(t.input(0));
  const ExtentShape from = t.input(0).shape;
  std::string node = t.plain(0);
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    if (!reduced->axes[axis]) continue;
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return t.add("Slice", {node}, SliceOptions{static_cast<std::int64_t>(axis), {first, count}});
    };
    std::vector<std::string> odd;  // elements that have no other half
    std::int64_t extent = fixed(from[axis]);
    for (; extent > 1; extent /= 2) {
      if (extent % 2 != 0) odd.push_back(part(extent - 1, 1));
      const std::string first = part(0, extent / 2);
      node = t.add("Mul", {first, part(extent / 2, extent / 2)});
    }
    for (const std::string& one : odd) node = t.add("Mul", {node, one});
  }
  give_kept(t, *reduced, node);
}

void reduce_mean(Translator& t) { reduce(t, "ReduceMean"); }
void reduce_sum(Translator& t) { reduce(t, "ReduceSum"); }
void reduce_max(Translator& t) { reduce(t, "ReduceMax"); }
void reduce_min(Translator& t) { reduce(t, "ReduceMin"); }
void reduce_l1(Translator& t) { reduce(t, "ReduceSum", absolute); }
void reduce_l2(Translator& t) { reduce(t, "ReduceSum", square, root); }
void reduce_sum_square(Translator& t) { reduce(t, "ReduceSum", square); }
void reduce_log_sum(Translator& t) { reduce(t, "ReduceSum", nullptr, logarithm); }

void cumulative_sum(Translator& t) {
  const auto axis = scalar_of(t.constant(1, "axis"));
  if (!axis) refuse("axis: expected one number");
  const std::size_t at = axis_of(static_cast<std::int64_t>(*axis), t.input(0).rank());
  if (t.input(0).shape[at].of_batch) refuse("over the batch");
  give_along(t, at, "CumulativeSum",
             stored_options(CumulativeSumOptions{.exclusive = t.node().integer("exclusive", 0) != 0,
                                                 .reverse = t.node().integer("reverse", 0) != 0}));
}

}  // namespace

std::vector<OperationRow> reduction_operations() {
  const std::string kNote = "over the batch";
  return {
      {"ReduceMean", reduce_mean, kNote},
      {"ReduceSum", reduce_sum, kNote},
      {"ReduceMax", reduce_max, kNote},
      {"ReduceMin", reduce_min, kNote},
      {"ReduceL1", reduce_l1, kNote},
      {"ReduceL2", reduce_l2, kNote},
      {"ReduceSumSquare", reduce_sum_square, kNote},
      {"ReduceLogSum", reduce_log_sum, kNote},
      {"ReduceLogSumExp", reduce_log_sum_exp, kNote},
      {"ReduceProd", reduce_prod, kNote},
      {"CumSum", cumulative_sum, kNote, "", WholeNumbers::kMoved},
  };
}

}  // namespace steelyard::imports
