// Reductions over dimensions.
#include "steelyard/import/translator.h"

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

// Of the module `type`, after and before another where they are not null.
void reduce(Translator& t, const char* type, Step before = nullptr, Step after = nullptr) {
  const Value& in = t.input(0);
  const ExtentShape from = in.shape;
  std::vector<std::int64_t> axes = t.attribute_or_input("axes", 1);
  if (axes.empty()) {
    const bool nothing = t.node().integer("noop_with_empty_axes", 0) != 0;
    if (nothing && (before != nullptr || after != nullptr)) refuse("over no dimension");
    if (nothing) return t.give(in);
    refuse("over all dimensions, the batch too");
  }
  std::vector<bool> reduced(from.size(), false);
  for (const std::int64_t axis : axes) reduced[axis_of(axis, from.size())] = true;
  const bool keep = t.node().integer("keepdims", 1) != 0;
  ExtentShape to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (reduced[i]) fixed(from[i]);
    if (!reduced[i]) to.push_back(from[i]);
    if (reduced[i] && keep) to.push_back({1});
  }
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
  node = t.add(type, {node}, {{"axes", held}, {"keep", keep}});
  t.give(after == nullptr ? node : after(t, node), to, output_last);
}

std::string square(Translator& t, const std::string& x) { return t.add("Mul", {x, x}); }
std::string absolute(Translator& t, const std::string& x) { return t.add("Abs", {x}); }
std::string root(Translator& t, const std::string& x) { return t.add("Sqrt", {x}); }
std::string logarithm(Translator& t, const std::string& x) { return t.add("Log", {x}); }

void reduce_mean(Translator& t) { reduce(t, "ReduceMean"); }
void reduce_sum(Translator& t) { reduce(t, "ReduceSum"); }
void reduce_max(Translator& t) { reduce(t, "ReduceMax"); }
void reduce_min(Translator& t) { reduce(t, "ReduceMin"); }
void reduce_l1(Translator& t) { reduce(t, "ReduceSum", absolute); }
void reduce_l2(Translator& t) { reduce(t, "ReduceSum", square, root); }
void reduce_sum_square(Translator& t) { reduce(t, "ReduceSum", square); }
void reduce_log_sum(Translator& t) { reduce(t, "ReduceSum", nullptr, logarithm); }

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
  };
}

}  // namespace steelyard::imports
