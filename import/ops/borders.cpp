// Borders around values.
#include <algorithm>

#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"

namespace steelyard::imports {
namespace {

// Where a border takes its elements: "reflect" mirrors what is next to it, "edge" repeats the last
// one, "wrap" goes on at the other end.
std::int64_t source_of(const std::string& mode, std::int64_t at, std::int64_t extent) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return (at % extent + extent) % extent;
  return at < extent ? std::abs(at) : 2 * (extent - 1) - at;
}

void pad_with_own(Translator& t, const std::vector<std::int64_t>& pads, const std::string& mode) {
  ExtentShape shape = t.input(0).shape;
  const bool last = t.input(0).channels_last;
  std::string node = t.held(0, last);
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t before = pads[axis], after = pads[axis + shape.size()];
    if (before == 0 && after == 0) continue;
    const std::int64_t extent = fixed(shape[axis]);
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    const std::int64_t most = mode == "edge" ? kMost : mode == "wrap" ? extent : extent - 1;
    if (extent > kMost || std::min(before, after) < 0 || std::max(before, after) > most) {
      refuse("borders of " + std::to_string(before) + " and " + std::to_string(after) + " of " +
             std::to_string(extent) + " elements, with the mode " + mode);
    }
    std::vector<std::int64_t> positions;
    for (std::int64_t at = -before; at < extent + after; ++at) {
      positions.push_back(source_of(mode, at, extent));
    }
    node = picked(t, node, held_axis(axis, shape.size(), last), shape.size(), positions);
    shape[axis] = {std::ssize(positions)};
  }
  t.give(node, shape, last);
}

// The pads of all dimensions, before them and then after them.
std::vector<std::int64_t> pads_of(Translator& t, std::size_t rank) {
  const auto given = t.attribute_or_input("pads", 1);
  const Constant* chosen = t.optional_constant(3, "axes");
  if (chosen == nullptr) {
    if (given.size() != 2 * rank) refuse("pads " + shape_string(given));
    return given;
  }
  const auto axes = integers_of(*chosen, "axes");
  if (given.size() != 2 * axes.size()) refuse("pads " + shape_string(given));
  std::vector<std::int64_t> pads(2 * rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = axis_of(axes[i], rank);
    pads[axis] = given[i];
    pads[axis + rank] = given[i + axes.size()];
  }
  return pads;
}

void pad(Translator& t) {
  const std::string mode = t.node().text("mode", "constant");
  const bool own = mode == "reflect" || mode == "edge" || mode == "wrap";
  if (mode != "constant" && !own) refuse("mode: " + mode + " is not supported");
  double value = t.node().real("value", 0);
  if (const Constant* given = t.optional_constant(2, "value")) {
    const auto number = scalar_of(*given);
    if (!number) refuse("value: expected one number");
    value = *number;
  }
  ExtentShape shape = t.input(0).shape;
  const auto pads = pads_of(t, shape.size());
  if (own) return pad_with_own(t, pads, mode);
  const bool last = t.input(0).channels_last;
  std::vector<std::int64_t> before, after;
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  for (const std::size_t axis : held_order(shape.size(), last)) {
    before.push_back(pads[axis]);
    after.push_back(pads[axis + shape.size()]);
    for (const std::int64_t pad : {before.back(), after.back()}) {
      if (pad < -kMost || pad > kMost) refuse("too large");
    }
    if (before.back() == 0 && after.back() == 0) continue;
    shape[axis] = {fixed(shape[axis]) + before.back() + after.back()};
    if (shape[axis].value < 1) refuse("its result is empty");
  }
  const auto nothing = [](const std::vector<std::int64_t>& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](auto size) { return size == 0; });
  };
  if (nothing(before) && nothing(after)) return t.give(t.input(0));
  t.give(t.add("Pad", {t.held(0, last)}, PadOptions{before, after, value}), shape, last);
}

}  // namespace

std::vector<OperationRow> border_operations() {
  return {{"Pad", pad, "of the batch", "", WholeNumbers::kMoved}};
}

}  // namespace steelyard::imports
