// Recurrent networks.
#include <algorithm>
#include <cctype>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/lstm.h"

namespace steelyard::imports {
namespace {

// What one direction of an LSTM has.
struct Direction {
  std::string name;
  bool reverse = false;
};

std::vector<Direction> directions_of(const OnnxNode& node) {
  const std::string direction = node.text("direction", "forward");
  if (direction == "forward") return {{"forward", false}};
  if (direction == "reverse") return {{"reverse", true}};
  if (direction == "bidirectional") return {{"forward", false}, {"reverse", true}};
  refuse("direction: " + direction + " is not supported");
}

void require_plain(const Translator& t, std::size_t directions) {
  const OnnxNode& node = t.node();
  if (node.has("clip")) refuse("clip is not supported");
  if (node.integer("input_forget", 0) != 0) refuse("input_forget is not supported");
  if (t.has_input(7)) refuse("peepholes are not supported");
  const auto given = node.attributes.find("activations");
  if (given == node.attributes.end()) return;
  const auto* names = std::get_if<std::vector<std::string>>(&given->second);
  const std::vector<std::string> usual{"sigmoid", "tanh", "tanh"};
  bool fits = names != nullptr && names->size() == 3 * directions;
  for (std::size_t i = 0; fits && i < names->size(); ++i) {
    std::string name = (*names)[i];
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    fits = name == usual[i % 3];
  }
  if (!fits) refuse("activations other than Sigmoid, Tanh, Tanh");
}

// Floats `first`, `first` + 1, ... of a constant.
Constant part_of(const Constant& from, std::size_t first, Shape shape) {
  Constant part{.shape = std::move(shape), .floating = true};
  const auto begin = from.reals.begin() + static_cast<std::ptrdiff_t>(first);
  part.reals.assign(begin, begin + static_cast<std::ptrdiff_t>(part.size()));
  return part;
}

// A pointer, because gcc 14 takes a reference for one into `shape`.
const Constant* weights(Translator& t, std::size_t i, const char* what, const Shape& shape) {
  const Constant& constant = t.constant(i, what);
  if (constant.floating && constant.shape == shape) return &constant;
  refuse(std::string("its ") + what + ": expected floats " + shape_string(shape) + ", got " +
         shape_string(constant.shape));
}

class Lstm {
 public:
  explicit Lstm(Translator& t)
      : t_(t), directions_(directions_of(t.node())), layout_(t.node().integer("layout", 0)) {
    require_plain(t, directions_.size());
    const ExtentShape& x = t.input(0).shape;
    if (x.size() != 3) refuse("of " + to_string(x) + ", expected a sequence");
    const std::size_t batch = layout_ == 0 ? 1 : 0;
    if (x[batch] != Extent{1, true}) refuse("of " + to_string(x) + ", expected one batch in it");
    batch_ = x[batch];
    length_ = fixed(x[1 - batch]);
    features_ = fixed(x[2]);
    if (t.input(1).known && t.input(1).known->shape.size() == 3) {
      units_ = t.input(1).known->shape[1] / 4;
    }
    if (units_ < 1 || length_ < 1) refuse("without units or steps");
    if (t.has_input(4)) require_whole_sequences();
  }

  void translate() {
    const bool with_cell = t_.is_read(2);
    std::vector<std::string> outputs, states, cells;
    const std::string x = t_.held_in(0, layout_ == 0 ? Order{1, 0, 2} : Order{0, 1, 2});
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      const bool reverse = directions_[d].reverse;
      const std::string all = module(x, d, with_cell);
      outputs.push_back(with_cell ? steps(all, 0, length_) : all);
      states.push_back(steps(all, reverse ? 0 : length_ - 1, 1));
      if (with_cell) cells.push_back(steps(all, length_, 1));
    }
    give_outputs(outputs);
    give_states(states, 1);
    if (with_cell) give_states(cells, 2);
  }

 private:
  // Lengths of sequences that are all as long as the input.
  void require_whole_sequences() const {
    const auto lengths = integers_of(t_.constant(4, "list of lengths"), "its list of lengths");
    for (const std::int64_t length : lengths) {
      if (length != length_) refuse("sequences of different lengths are not supported");
    }
  }

  std::string module(const std::string& x, std::size_t d, bool with_cell) {
    const auto count = static_cast<std::int64_t>(directions_.size());
    const std::int64_t gates = 4 * units_;
    const Constant& w = *weights(t_, 1, "weight", {count, gates, features_});
    const Constant& r = *weights(t_, 2, "recurrent weight", {count, gates, units_});
    const auto at = [d](std::int64_t size) { return d * static_cast<std::size_t>(size); };
    const Constant output = first_state(5, d), cell = first_state(6, d);
    const auto is_zero = [](const Constant& state) {
      return std::all_of(state.reals.begin(), state.reals.end(), [](float v) { return v == 0; });
    };
    const LstmLayerOptions options{
        .inputs = features_,
        .units = units_,
        .pass = {.reverse = directions_[d].reverse, .final_cell = with_cell},
        .begins_at_zero = is_zero(output) && is_zero(cell)};
    const std::string name = t_.add("LSTM", {x}, stored_options(options, kStoredLstm));
    t_.set_weight(name, "weight", part_of(w, at(gates * features_), {gates, features_}));
    t_.set_weight(name, "recurrent_weight", part_of(r, at(gates * units_), {gates, units_}));
    Constant bias{.shape = {gates}, .floating = true};
    bias.reals.assign(static_cast<std::size_t>(gates), 0.0F);
    if (t_.has_input(3)) {  // one for each of the two products
      const Constant& both = *weights(t_, 3, "bias", {count, 2 * gates});
      for (std::size_t i = 0; i < bias.reals.size(); ++i) {
        const std::size_t first = at(2 * gates) + i;
        bias.reals[i] = both.reals[first] + both.reals[first + bias.reals.size()];
      }
    }
    t_.set_weight(name, "bias", bias);
    t_.set_weight(name, "first_output", output);
    t_.set_weight(name, "first_cell", cell);
    return name;
  }

  // [directions, samples, units], or with the samples first; the same for every sample.
  Constant first_state(std::size_t i, std::size_t d) const {
    Constant zero{.shape = {units_}, .floating = true};
    zero.reals.assign(static_cast<std::size_t>(units_), 0.0F);
    if (!t_.has_input(i)) return zero;
    const Constant& all = t_.constant(i, "state before the first step");
    const auto count = static_cast<std::int64_t>(directions_.size());
    const std::size_t of_batch = layout_ == 0 ? 1 : 0;
    const bool fits = all.floating && all.shape.size() == 3 && all.shape[1 - of_batch] == count &&
                      all.shape[2] == units_ && all.shape[of_batch] > 0;
    const auto repeated = t_.input(i).repeated;
    if (!fits || (repeated && *repeated != of_batch)) {
      refuse("its state before the first step has the shape " + shape_string(all.shape));
    }
    const auto units = static_cast<std::size_t>(units_);
    const auto row = [&](std::size_t sample) {
      const std::size_t samples = static_cast<std::size_t>(all.shape[of_batch]);
      const std::size_t at =
          of_batch == 1 ? d * samples + sample : sample * static_cast<std::size_t>(count) + d;
      return part_of(all, at * units, {units_});
    };
    for (std::size_t n = 1; n < static_cast<std::size_t>(all.shape[of_batch]); ++n) {
      if (row(n).reals != row(0).reals) refuse("its samples begin with different states");
    }
    return row(0);
  }

  std::string steps(const std::string& node, std::int64_t first, std::int64_t count) {
    return t_.add("Slice", {node}, SliceOptions{1, {first, count}});
  }

  // [N, L, H] of each direction as [N, L, directions, H].
  void give_outputs(const std::vector<std::string>& nodes) {
    const auto count = static_cast<std::int64_t>(nodes.size());
    const std::string both = count == 1 ? nodes[0] : t_.add("Cat", nodes);
    const std::string node = t_.add("Reshape", {both}, NewShape{{-1, length_, count, units_}});
    const Extent length{length_}, directions{count}, units{units_};
    if (layout_ != 0) return t_.give(node, {batch_, length, directions, units}, false);
    t_.give({.shape = {length, directions, batch_, units}, .node = node, .order = {2, 0, 1, 3}});
  }

  // [N, 1, H] of each direction as [N, directions, H].
  void give_states(const std::vector<std::string>& nodes, std::size_t output) {
    const auto count = static_cast<std::int64_t>(nodes.size());
    const std::string node = count == 1 ? nodes[0] : t_.add("CatAxis", nodes, JoinedAxis{1});
    const Extent directions{count}, units{units_};
    if (layout_ != 0) {
      return t_.give({.shape = {batch_, directions, units}, .node = node}, output);
    }
    t_.give({.shape = {directions, batch_, units}, .node = node, .order = {1, 0, 2}}, output);
  }

  Translator& t_;
  std::vector<Direction> directions_;
  std::int64_t layout_;
  Extent batch_;
  std::int64_t length_ = 0, features_ = 0, units_ = 0;
};

void lstm(Translator& t) { Lstm(t).translate(); }

}  // namespace

std::vector<OperationRow> recurrent_operations() {
  return {
      {"LSTM", lstm,
       "peepholes, clip, other activations, computed states before the first step, sequences of "
       "different lengths"}};
}

}  // namespace steelyard::imports
