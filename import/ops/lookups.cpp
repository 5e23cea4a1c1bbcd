// Rows of tables, one-hot values, and positions that a list names.
#include <algorithm>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/weighted/embedding.h"

namespace steelyard::imports {
namespace {

// One position of a dimension, which goes; the others stay in the order in which they are held.
void give_without(Translator& t, const std::string& node, const ExtentShape& to, const Order& own,
                  std::size_t axis) {
  Order order;
  ExtentShape held;
  for (const std::size_t other : own) {
    if (other == axis) continue;
    order.push_back(other > axis ? other - 1 : other);
    held.push_back(to[order.back()]);
  }
  const std::string row = t.add("Reshape", {node}, NewShape{open_sizes(held)});
  if (order == held_order(to.size(), false)) return t.give(row, to, false);
  t.give({.shape = to, .node = row, .order = order});
}

// Positions in a dimension of a computed value.
void gather_positions(Translator& t, const Constant& list) {
  const ExtentShape from = t.input(0).shape;
  const std::size_t axis = axis_of(t.node().integer("axis", 0), from.size());
  const std::int64_t extent = fixed(from[axis]);
  std::vector<std::int64_t> positions = integers_of(list, "indices");
  for (std::int64_t& at : positions) {
    if (at < 0) at += extent;
    if (at < 0 || at >= extent) refuse("an index is outside of its dimension");
  }
  ExtentShape to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(axis));
  for (const std::int64_t size : list.shape) to.push_back({size});
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.end());
  if (to.size() == from.size()) {
    const std::size_t at = held_axis(t.input(0), axis);
    return t.give_as(0, picked(t, t.as_held(0), at, from.size(), positions), to);
  }
  if (const Order own = t.input(0).order; !own.empty() && list.shape.empty()) {
    const std::string node =
        picked(t, t.as_held(0), held_axis(t.input(0), axis), from.size(), positions);
    return give_without(t, node, to, own, axis);
  }
  const std::string node = picked(t, t.plain(0), axis, from.size(), positions);
  t.give(t.add("Reshape", {node}, NewShape{open_sizes(to)}), to, false);
}

// Positions among the rows of all samples, of which each sample reads its own.
void gather_own_rows(Translator& t) {
  const ImportedValue &in = t.input(0), &list = t.input(1);
  const auto of_samples = [&] {
    return in.joined == 0U && t.node().integer("axis", 0) == 0 && list.repeated == 0U &&
           in.shape[0] == Extent{1, true} && in.shape[1] == Extent{list.sample_step};
  };
  if (!of_samples()) refuse("of the numbers of the samples");
  const std::vector<std::int64_t> positions = integers_of(*list.known, "indices");
  for (const std::int64_t at : positions) {
    if (at < 0 || at >= list.sample_step) refuse("an index is none of the sample's own rows");
  }
  ExtentShape to{in.shape[0]};
  for (std::size_t i = 1; i < list.known->shape.size(); ++i) to.push_back({list.known->shape[i]});
  to.insert(to.end(), in.shape.begin() + 2, in.shape.end());
  const std::string node = picked(t, t.plain(0), 1, in.rank(), positions);
  t.give(t.add("Reshape", {node}, NewShape{open_sizes(to)}), to, false);
}

// The node's output is whole numbers, as its input is.
void give_whole(Translator& t) {
  if (const ImportedValue* made = t.value(t.node().outputs[0])) {
    ImportedValue whole = *made;
    whole.whole = true;
    t.give(std::move(whole));
  }
}

void gather(Translator& t) {
  if (!t.input(0).known) {
    const bool whole = t.input(0).whole;
    if (t.input(1).sample_step != 0) {
      gather_own_rows(t);
    } else {
      gather_positions(t, t.constant(1, "list of indices"));
    }
    if (whole) give_whole(t);
    return;
  }
  const Constant& table = t.constant(0, "table");
  if (!t.input(1).whole || t.input(1).one_hot != 0) refuse("of other than whole numbers");
  if (!table.floating || table.shape.size() != 2) {
    refuse("of a table " + shape_string(table.shape) + ", expected floats [rows, width]");
  }
  if (axis_of(t.node().integer("axis", 0), 2) != 0) refuse("of columns of a table");
  give_rows(t, t.plain(1), t.input(1).shape, t.node().input(0), table);
}

// Of a table of one and the same number, whatever the indices are: exporters take the types of
// tokens so, which are zeros.
void gather_elements(Translator& t) {
  const Constant& table = t.constant(0, "table");
  const auto alike = [](const auto& numbers) {
    return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](const auto& number) {
      return number == numbers.front();
    });
  };
  if (table.floating ? !alike(table.reals) : !alike(table.integers)) {
    refuse("of a table with different numbers, at indices that are computed");
  }
  ImportedValue made{.shape = {}, .known = Constant{.shape = {}, .floating = table.floating}};
  const ExtentShape shape = onnx_shape(t.input(1));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == Extent{1, true}) made.repeated = i;
    made.known->shape.push_back(made.repeated == i ? 1 : fixed(shape[i]));
  }
  const auto count = static_cast<std::size_t>(made.known->size());
  if (table.floating) {
    made.known->reals.assign(count, table.reals.front());
  } else {
    made.known->integers.assign(count, table.integers.front());
  }
  t.give(std::move(made));
}

// Values [..., 1] compared with 0, 1, ..., classes - 1 in the last dimension are one-hot.
void equal(Translator& t) {
  const std::size_t at = t.input(0).known ? 1 : 0;
  const ImportedValue& in = t.input(at);
  if (!t.input(1 - at).known) return give_comparison(t, "WhereEqual");
  const Constant& numbers = *t.input(1 - at).known;
  bool counts = !numbers.floating && !numbers.shape.empty() && numbers.size() > 1 &&
                numbers.size() == numbers.shape.back() && in.whole && in.one_hot == 0;
  for (std::int64_t i = 0; counts && i < numbers.size(); ++i) {
    counts = numbers.integers[static_cast<std::size_t>(i)] == Extent{i};
  }
  const ExtentShape shape = in.shape;
  if (!counts || shape.size() < 2 || shape.back() != Extent{1} ||
      numbers.shape.size() > shape.size()) {
    return give_comparison(t, "WhereEqual");
  }
  ExtentShape without(shape.begin(), shape.end() - 1), to = shape;
  to.back() = {numbers.size()};
  t.give({.shape = to,
          .node = t.add("Reshape", {t.plain(at)}, NewShape{open_sizes(without)}),
          .whole = true,
          .one_hot = numbers.size()});
}

void one_hot(Translator& t) {
  const auto depth = scalar_of(t.constant(1, "depth"));
  const Constant& values = t.constant(2, "values");
  const bool of_ones = values.floating ? values.reals == std::vector<float>{0, 1}
                                       : values.integers == std::vector<Extent>{{0}, {1}};
  if (!of_ones) refuse("values other than 0 and 1");
  constexpr double kMostClasses = 1 << 24;  // that floats count
  if (!depth || !(*depth >= 1 && *depth <= kMostClasses))
    refuse("a depth that is no number of classes");
  const ImportedValue& in = t.input(0);
  if (!in.whole || in.one_hot != 0) refuse("of other than whole numbers");
  ExtentShape to = in.shape;
  to.push_back({static_cast<std::int64_t>(*depth)});
  const std::int64_t axis = t.node().integer("axis", -1);
  if (axis != -1 && axis != std::ssize(to) - 1) refuse("along other than a new last dimension");
  t.give({.shape = to,
          .node = t.plain(0),
          .whole = true,
          .one_hot = static_cast<std::int64_t>(*depth)});
}

}  // namespace

void give_rows(Translator& t, const std::string& node, const ExtentShape& shape,
               const std::string& name, const Constant& table) {
  const std::int64_t count = table.shape[0], width = table.shape[1];
  const std::string module = t.add_named(name, "Embedding", {node}, EmbeddingOptions{count, width});
  t.set_weight(module, "weight", table);
  ExtentShape to = shape;
  to.push_back({width});
  t.give(module, to, false);
}

std::vector<OperationRow> lookup_operations() {
  return {
      {"Gather", gather,
       "tables other than constant ones of two dimensions; computed indices of others", "",
       WholeNumbers::kRead},
      {"GatherElements", gather_elements, "computed indices, but for tables of one number", "",
       WholeNumbers::kRead},
      {"Equal", equal, "read by arithmetic, but for a product with a table", "",
       WholeNumbers::kRead},
      {"OneHot", one_hot, "values other than 0 and 1, a dimension other than the last", "",
       WholeNumbers::kRead},
  };
}

}  // namespace steelyard::imports
