#include "steelyard/export/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/export/stream_reading.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::deploy {
namespace {

[[noreturn]] void fail_stream(const Node& node, const std::string& why) {
  throw InputError("export.stream: layer '" + printable(node.name) + "': " + why);
}

// The smallest whole number that is not below a / b, for b > 0.
std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return a > 0 ? (a + b - 1) / b : -(-a / b);
}

// Where time is in a value, by positions in a window.
struct Timeline {
  std::optional<std::size_t> axis = {};  // absent: the value is one of the whole window
  std::int64_t size = 0;
  std::int64_t step = 0;  // positions by which a call moves the window
  // Positions whose codes are those of the same frames in any window.
  std::int64_t first = 0, last = 0;
  std::string left_by = {}, right_by = {};  // layers by whose padding the others are not
  std::int64_t wanted = 0;                  // positions before `last` that a call reads

  std::int64_t fresh() const { return std::min(step, wanted); }  // that it computes
};

class StreamBuilder {
 public:
  StreamBuilder(const Graph& graph, const StreamOptions& options)
      : whole_(graph),
        times_(graph.values.size()),
        fresh_(graph.values.size(), 0),
        histories_(fresh_) {
    set_input(options);
    for (const Node& node : whole_.nodes) times_[node.output] = timeline_of(node);
    want_output();
    times_[input_codes(whole_)].wanted =
        std::max(times_[input_codes(whole_)].wanted, result_.frames);
    for (auto node = whole_.nodes.rbegin(); node != whole_.nodes.rend(); ++node) want_inputs(*node);
  }

  Stream stream() {
    Graph& graph = result_.graph;
    graph = whole_;
    graph.resized.clear();
    graph.values.clear();
    graph.nodes.clear();
    graph.input = fresh_[whole_.input] = add_value(whole_.input, "input");
    for (const Node& node : whole_.nodes) add(node);
    graph.output = fresh_[whole_.output];
    return std::move(result_);
  }

 private:
  const Shape& shape_of(std::size_t value) const { return whole_.values[value].shape; }

  void set_input(const StreamOptions& options) {
    const Shape& sample = shape_of(whole_.input);
    const auto rank = std::ssize(sample);
    const auto longer =
        std::find_if(sample.begin(), sample.end(), [](auto size) { return size > 1; });
    const std::int64_t axis = options.axis.value_or(longer - sample.begin());
    if (axis < 0 || axis >= rank) {
      throw InputError(fmt::format("export.stream.axis: expected a dimension of samples {}, got {}",
                                   shape_string(sample), axis));
    }
    const std::int64_t size = sample[static_cast<std::size_t>(axis)];
    if (options.frames < 1 || options.frames >= size) {
      throw InputError(
          fmt::format("export.stream.frames: expected 1 or more, and less than the {} frames of a "
                      "window, got {}",
                      size, options.frames));
    }
    result_.axis = axis;
    result_.frames = options.frames;
    result_.window_frames = size;
    times_[whole_.input] = {
        .axis = static_cast<std::size_t>(axis), .size = size, .step = options.frames, .last = size};
  }

  // Where the positions of the output are that the input's timeline gives.
  Timeline mapped(const Node& node, const Timeline& in, const StreamReading& reading) const {
    Timeline out{.axis = reading.axis, .size = shape_of(node.output)[reading.axis]};
    out.first = std::max<std::int64_t>(0, divided_up(in.first + reading.before, reading.stride));
    out.left_by = reading.before > 0 ? node.name : in.left_by;
    const std::int64_t end = in.last - reading.reach + reading.before;
    out.last = std::clamp<std::int64_t>(divided_up(end, reading.stride), 0, out.size);
    out.right_by = in.last < in.size ? in.right_by : node.name;
    out.step = in.step / reading.stride;
    if (in.step % reading.stride != 0 || out.step == 0) {
      // Of one position alone each call computes a new one.
      if (out.last - out.first > 1) {
        const std::int64_t before = result_.frames / in.step;  // strides of layers before
        fail_stream(node, fmt::format("its stride of {} along time does not divide the {} frames "
                                      "that a call adds to its input: export.stream.frames is "
                                      "expected to be a multiple of {}",
                                      reading.stride, in.step, before * reading.stride));
      }
      out.step = 1;
    }
    return out;
  }

  Timeline timeline_of(const Node& node) {
    std::optional<Timeline> out;
    bool has_whole = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Timeline& in = times_[node.inputs[i]];
      const StreamReading reading =
          in.axis ? stream_reading(whole_, node, i, *in.axis) : StreamReading{.whole = true};
      if (!reading.refusal.empty()) fail_stream(node, reading.refusal);
      has_whole = has_whole || reading.whole;
      if (reading.whole) continue;
      Timeline of_input = mapped(node, in, reading);
      if (!out) {
        out = std::move(of_input);
        continue;
      }
      if (of_input.first > out->first) {
        out->first = of_input.first;
        out->left_by = of_input.left_by;
      }
      if (of_input.last < out->last) {
        out->last = of_input.last;
        out->right_by = of_input.right_by;
      }
      if (of_input.axis != out->axis || of_input.step != out->step) {
        fail_stream(node, "its inputs differ in where time is");
      }
    }
    if (out && has_whole) {
      fail_stream(node,
                  "it combines frames with a value of the whole window, which changes all "
                  "of them with each call");
    }
    return out.value_or(Timeline{});
  }

  // `count` positions before `last` are read by the node.
  void want(std::size_t value, std::int64_t count, const Node& reader) {
    Timeline& time = times_[value];
    if (count > time.last - time.first) fail_stream(reader, beside_padding(time.left_by, "begins"));
    time.wanted = std::max(time.wanted, count);
  }

  void want_whole(std::size_t value, const Node& reader) {
    const Timeline& time = times_[value];
    if (time.last < time.size) fail_stream(reader, beside_padding(time.right_by, "ends"));
    want(value, time.size, reader);
  }

  static std::string beside_padding(const std::string& layer, const char* where) {
    return "it reads what layer '" + printable(layer) +
           "' computes from padding where the window " + where + ": in a stream, frames are there";
  }

  void want_output() {
    const Timeline& time = times_[whole_.output];
    if (!time.axis) return;
    const Node& maker = whole_.nodes.back();
    if (time.last < time.size) fail_stream(maker, beside_padding(time.right_by, "ends"));
    want(whole_.output, std::min(time.step, time.size), maker);
  }

  // What of the input the first position of the output's that a call computes reads first.
  std::int64_t first_read(const Node& node, const StreamReading& reading) const {
    const Timeline& out = times_[node.output];
    return (out.last - out.fresh()) * reading.stride - reading.before;
  }

  bool is_computed(const Node& node) const {
    const Timeline& out = times_[node.output];
    return !out.axis || out.wanted > 0;
  }

  void want_inputs(const Node& node) {
    if (!is_computed(node)) return;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Timeline& in = times_[node.inputs[i]];
      if (!in.axis) continue;
      const StreamReading reading = stream_reading(whole_, node, i, *in.axis);
      if (reading.whole) {
        want_whole(node.inputs[i], node);
      } else {
        want(node.inputs[i], in.last - first_read(node, reading), node);
      }
    }
  }

  // The value with so many positions along time; all of them where time is no dimension of it.
  std::size_t add_value(std::size_t of, const std::string& name, std::int64_t positions) {
    Value value = whole_.values[of];
    value.name = name;
    if (times_[of].axis) value.shape[*times_[of].axis] = positions;
    result_.graph.values.push_back(std::move(value));
    return result_.graph.values.size() - 1;
  }
  std::size_t add_value(std::size_t of, const std::string& name) {
    return add_value(of, name, times_[of].fresh());
  }

  // A node that reads one value and writes another.
  std::size_t add_node(Op op, NodeOptions options, const std::string& name, std::size_t input,
                       std::size_t output) {
    Node node;
    node.op = op;
    node.options = std::move(options);
    node.name = name;
    node.inputs = {input};
    node.output = output;
    result_.graph.nodes.push_back(std::move(node));
    return output;
  }

  // The positions from `lo` to `hi` of an input along time, the last one left out.
  std::size_t read(Node& node, std::size_t i, std::int64_t lo, std::int64_t hi,
                   const StreamReading& reading) {
    const std::size_t value = node.inputs[i];
    const Timeline& time = times_[value];
    const bool now = lo >= time.last - time.fresh();
    const std::size_t source = now ? fresh_[value] : histories_[value];
    const std::int64_t base = time.last - (now ? time.fresh() : time.wanted);
    if (node.op == Op::kSlice) {
      node.as<Positions>().first[*time.axis] = lo - base;
      return source;
    }
    // What follows the last window and is shorter than a stride makes no further one.
    if (lo == base && time.last - hi < reading.stride) return source;
    const std::string name = fmt::format("{}/frames{}", node.name, i);
    Positions positions;
    positions.first.assign(shape_of(value).size(), 0);
    positions.steps.assign(shape_of(value).size(), 1);
    positions.first[*time.axis] = lo - base;
    return add_node(Op::kSlice, positions, name, source, add_value(value, name, hi - lo));
  }

  std::size_t input_of(Node& node, std::size_t i) {
    const std::size_t value = node.inputs[i];
    const Timeline& in = times_[value];
    if (!in.axis) return fresh_[value];
    const StreamReading reading = stream_reading(whole_, node, i, *in.axis);
    if (reading.whole) return read(node, i, 0, in.size, reading);
    const std::int64_t last = (times_[node.output].last - 1) * reading.stride - reading.before;
    const std::size_t input =
        read(node, i, first_read(node, reading), last + reading.reach + 1, reading);
    unpad(node, *in.axis);
    return input;
  }

  // Whether a slice or a border of what a call computes is all of it.
  bool keeps_all(const Node& node, const Shape& out) const {
    if (result_.graph.values[node.inputs[0]].shape != out) return false;
    if (node.op == Op::kPad) return true;
    if (node.op != Op::kSlice) return false;
    const std::vector<std::int64_t>& steps = node.as<Positions>().steps;
    return std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
  }

  void add(const Node& whole) {
    if (!is_computed(whole)) return;
    Node node = whole;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) node.inputs[i] = input_of(node, i);
    const std::size_t output = add_value(whole.output, whole_.values[whole.output].name);
    if (keeps_all(node, result_.graph.values[output].shape)) {
      result_.graph.values.pop_back();
      fresh_[whole.output] = node.inputs[0];
    } else {
      node.output = fresh_[whole.output] = output;
      result_.graph.nodes.push_back(std::move(node));
    }
    const Timeline& time = times_[whole.output];
    if (!time.axis || time.wanted == time.fresh()) return;
    const std::string name = whole.name + "/history";
    const std::size_t history =
        add_node(Op::kConcat, JoinedAxis{static_cast<std::int64_t>(*time.axis)}, name,
                 fresh_[whole.output], add_value(whole.output, name, time.wanted));
    histories_[whole.output] = history;
    result_.histories.push_back(history);
  }

  const Graph& whole_;
  std::vector<Timeline> times_;                 // of its values
  std::vector<std::size_t> fresh_, histories_;  // the values of the stream's graph
  Stream result_;
};

}  // namespace

bool Stream::makes_history(const Node& node) const {
  return std::find(histories.begin(), histories.end(), node.output) != histories.end();
}

Stream stream_of(const Graph& graph, const StreamOptions& options) {
  return StreamBuilder(graph, options).stream();
}

}  // namespace steelyard::deploy
