// Recurrent networks.
#include <algorithm>
#include <cctype>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"

namespace steelyard::imports {
namespace {

// What one direction has.
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

// `usual`: the functions of one direction, as ONNX names them.
void require_plain(const Translator& t, std::size_t directions,
                   const std::vector<std::string>& usual) {
  const OnnxNode& node = t.node();
  if (node.has("clip")) refuse("clip is not supported");
  const auto given = node.attributes.find("activations");
  if (given == node.attributes.end()) return;
  const auto lower = [](std::string name) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
  };
  const auto* names = std::get_if<std::vector<std::string>>(&given->second);
  bool fits = names != nullptr && names->size() == usual.size() * directions;
  std::string listed;
  for (const std::string& name : usual) listed += (listed.empty() ? "" : ", ") + name;
  for (std::size_t i = 0; fits && i < names->size(); ++i) {
    fits = lower((*names)[i]) == lower(usual[i % usual.size()]);
  }
  if (!fits) refuse("activations other than " + listed);
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

// What LSTM and GRU nodes have in common: sequences, directions, states.
class Recurrent {
 public:
  // `gates` of each unit.
  Recurrent(Translator& t, std::int64_t gates, const std::vector<std::string>& functions)
      : t_(t), directions_(directions_of(t.node())), layout_(t.node().integer("layout", 0)) {
    require_plain(t, directions_.size(), functions);
    const ExtentShape& x = t.input(0).shape;
    if (x.size() != 3) refuse("of " + to_string(x) + ", expected a sequence");
    const std::size_t batch = layout_ == 0 ? 1 : 0;
    if (x[batch] != Extent{1, true}) refuse("of " + to_string(x) + ", expected one batch in it");
    batch_ = x[batch];
    length_ = fixed(x[1 - batch]);
    features_ = fixed(x[2]);
    if (t.input(1).known && t.input(1).known->shape.size() == 3) {
      units_ = t.input(1).known->shape[1] / gates;
    }
    if (units_ < 1 || length_ < 1) refuse("without units or steps");
    if (t.has_input(4)) require_whole_sequences();
    gates_ = gates * units_;
  }

 protected:
  // [N, L, features].
  std::string sequences() { return t_.held_in(0, layout_ == 0 ? Order{1, 0, 2} : Order{0, 1, 2}); }

  // The weights of direction d.
  void set_weights(const std::string& name, std::size_t d) {
    t_.set_weight(name, "weight", weight(d));
    t_.set_weight(name, "recurrent_weight", recurrent_weight(d));
  }
  Constant weight(std::size_t d) {
    const auto count = static_cast<std::int64_t>(directions_.size());
    const Constant& w = *weights(t_, 1, "weight", {count, gates_, features_});
    return part_of(w, at(d, gates_ * features_), {gates_, features_});
  }
  Constant recurrent_weight(std::size_t d) {
    const auto count = static_cast<std::int64_t>(directions_.size());
    const Constant& r = *weights(t_, 2, "recurrent weight", {count, gates_, units_});
    return part_of(r, at(d, gates_ * units_), {gates_, units_});
  }

  // Those of the two products, one after the other; zeros where there are none.
  Constant biases(std::size_t d) {
    const Shape shape{2 * gates_};
    if (!t_.has_input(3)) return zeros(shape);
    const auto count = static_cast<std::int64_t>(directions_.size());
    return part_of(*weights(t_, 3, "bias", {count, 2 * gates_}), at(d, 2 * gates_), shape);
  }

  static Constant zeros(Shape shape) {
    Constant zero{.shape = std::move(shape), .floating = true};
    zero.reals.assign(static_cast<std::size_t>(zero.size()), 0.0F);
    return zero;
  }

  // Where direction d begins, if each has so many.
  static std::size_t at(std::size_t d, std::int64_t size) {
    return d * static_cast<std::size_t>(size);
  }

  // Lengths of sequences that are all as long as the input.
  void require_whole_sequences() const {
    const auto lengths = integers_of(t_.constant(4, "list of lengths"), "its list of lengths");
    for (const std::int64_t length : lengths) {
      if (length != length_) refuse("sequences of different lengths are not supported");
    }
  }

  // [directions, samples, units], or with the samples first; the same for every sample.
  Constant first_state(std::size_t i, std::size_t d) const {
    if (!t_.has_input(i)) return zeros({units_});
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
      const std::size_t place =
          of_batch == 1 ? d * samples + sample : sample * static_cast<std::size_t>(count) + d;
      return part_of(all, place * units, {units_});
    };
    for (std::size_t n = 1; n < static_cast<std::size_t>(all.shape[of_batch]); ++n) {
      if (row(n).reals != row(0).reals) refuse("its samples begin with different states");
    }
    return row(0);
  }

  bool is_computed(std::size_t i) const { return t_.has_input(i) && !t_.input(i).known; }

  // A computed state before the first step, of direction d: [N, 1, units].
  std::string computed_state(std::size_t i, std::size_t d) {
    const auto count = static_cast<std::int64_t>(directions_.size());
    ExtentShape expected{batch_, {count}, {units_}};
    if (layout_ == 0) std::swap(expected[0], expected[1]);
    if (t_.input(i).shape != expected) {
      refuse("its state before the first step has the shape " + to_string(t_.input(i).shape));
    }
    const std::string all = t_.held_in(i, layout_ == 0 ? Order{1, 0, 2} : Order{0, 1, 2});
    return count == 1 ? all : steps(all, static_cast<std::int64_t>(d), 1);
  }

  // The last one computed, of the outputs of all steps of direction d.
  std::string last_step(const std::string& all, std::size_t d) {
    return steps(all, directions_[d].reverse ? 0 : length_ - 1, 1);
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
  std::int64_t gates_ = 0;  // of all units
};

class Lstm : public Recurrent {
 public:
  explicit Lstm(Translator& t) : Recurrent(t, 4, {"Sigmoid", "Tanh", "Tanh"}) {
    if (t.node().integer("input_forget", 0) != 0) refuse("input_forget is not supported");
    if (t.has_input(7)) refuse("peepholes are not supported");
  }

  void translate() {
    const bool with_cell = t_.is_read(2);
    if (length_ == 1 && is_computed(5) && is_computed(6)) return give_cell();
    std::vector<std::string> outputs, states, cells;
    const std::string x = sequences();
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      const std::string all = module(x, d, with_cell);
      outputs.push_back(with_cell ? steps(all, 0, length_) : all);
      states.push_back(last_step(all, d));
      if (with_cell) cells.push_back(steps(all, length_, 1));
    }
    give_outputs(outputs);
    give_states(states, 1);
    if (with_cell) give_states(cells, 2);
  }

 private:
  std::string module(const std::string& x, std::size_t d, bool with_cell) {
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
    set_weights(name, d);
    t_.set_weight(name, "bias", sum_of_biases(d));
    t_.set_weight(name, "first_output", output);
    t_.set_weight(name, "first_cell", cell);
    return name;
  }

  Constant sum_of_biases(std::size_t d) {
    const Constant both = biases(d);
    Constant bias = zeros({gates_});
    for (std::size_t i = 0; i < bias.reals.size(); ++i) {
      bias.reals[i] = both.reals[i] + both.reals[i + bias.reals.size()];
    }
    return bias;
  }

  // One step from states that are inputs or computed, spelt out.
  void give_cell() {
    std::vector<std::string> outputs, cells;
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      const std::string of_x =
          t_.add("Linear", {sequences()}, LinearOptions{features_, gates_, /*bias=*/true});
      t_.set_weight(of_x, "weight", weight(d));
      t_.set_weight(of_x, "bias", sum_of_biases(d));
      const std::string of_state =
          t_.add("Linear", {computed_state(5, d)}, LinearOptions{units_, gates_, /*bias=*/false});
      t_.set_weight(of_state, "weight", recurrent_weight(d));
      const std::string gates = t_.add("Add", {of_x, of_state});
      const auto gate = [&](std::int64_t i, const char* function) {
        const SliceOptions part{2, {i * units_, units_}};
        return t_.add(function, {t_.add("Slice", {gates}, part)});
      };
      const std::string kept = t_.add("Mul", {gate(2, "Sigmoid"), computed_state(6, d)});
      const std::string added = t_.add("Mul", {gate(0, "Sigmoid"), gate(3, "Tanh")});
      cells.push_back(t_.add("Add", {kept, added}));
      outputs.push_back(t_.add("Mul", {gate(1, "Sigmoid"), t_.add("Tanh", {cells.back()})}));
    }
    give_outputs(outputs);
    give_states(outputs, 1);
    give_states(cells, 2);
  }
};

class Gru : public Recurrent {
 public:
  explicit Gru(Translator& t) : Recurrent(t, 3, {"Sigmoid", "Tanh"}) {
    if (t.node().integer("linear_before_reset", 0) != 1) {
      refuse("linear_before_reset other than 1 is not supported");
    }
  }

  void translate() {
    std::vector<std::string> outputs, states;
    const std::string x = sequences();
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      outputs.push_back(module(x, d));
      states.push_back(last_step(outputs.back(), d));
    }
    give_outputs(outputs);
    give_states(states, 1);
  }

 private:
  std::string module(const std::string& x, std::size_t d) {
    const Constant output = first_state(5, d);
    const GruLayerOptions options{
        .inputs = features_, .units = units_, .pass = {.reverse = directions_[d].reverse}};
    const std::string name = t_.add("GRU", {x}, options);
    set_weights(name, d);
    // That of the new state's recurrent product stands apart: the reset gate acts on it.
    const Constant both = biases(d);
    const auto gates = static_cast<std::size_t>(gates_), units = static_cast<std::size_t>(units_);
    Constant bias = zeros({gates_});
    for (std::size_t i = 0; i < gates; ++i) {
      bias.reals[i] = both.reals[i] + (i < gates - units ? both.reals[i + gates] : 0);
    }
    t_.set_weight(name, "bias", bias);
    t_.set_weight(name, "recurrent_bias", part_of(both, 2 * gates - units, {units_}));
    t_.set_weight(name, "first_output", output);
    return name;
  }
};

void lstm(Translator& t) { Lstm(t).translate(); }
void gru(Translator& t) { Gru(t).translate(); }

}  // namespace

std::vector<OperationRow> recurrent_operations() {
  return {
      {"LSTM", lstm,
       "peepholes, clip, other activations, computed states before the first of several steps, "
       "sequences of different lengths"},
      {"GRU", gru,
       "linear_before_reset other than 1, clip, other activations, computed states before the "
       "first step, sequences of different lengths"},
  };
}

}  // namespace steelyard::imports
