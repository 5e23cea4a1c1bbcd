// Random graphs over frames, for tests of what is computed call by call.
#pragma once

#include <algorithm>

#include "steelyard/export/stream.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/export/random_graph.h"

namespace steelyard::testing {

class StreamGraph : public RandomGraph {
 public:
  // Some read what is computed from padding, or have strides that new frames are no multiple of.
  StreamGraph(unsigned seed, kernels::Rounding rounding)
      : RandomGraph(seed, rounding, seed % 3 == 2 ? 4 : 8) {
    graph_.name = "stream";
    const std::size_t axis = static_cast<std::size_t>(pick(0, 1));
    time_ = axis;
    Shape input{pick(1, 4), pick(1, 4), pick(1, 5)};
    input[time_] = pick(24, 40);
    graph_.values.push_back({"input", input, {}});
    inputs_ = Tensor::empty(batched(input));
    for (float& x : inputs_.span<float>()) x = uniform(-2, 3);
    last_ = finish(make_node(Op::kQuantize, {0}), input);
    const bool pads = pick(0, 1) == 0;
    for (std::int64_t i = pick(2, 5); i > 0; --i) add_operation(pads);
    end(pads);
    graph_.output = last_;
    options_ = {stride_ * pick(1, 2), static_cast<std::int64_t>(axis)};
    if (pick(0, 9) == 0) options_.frames = input[axis] - pick(1, 3);
  }

  const deploy::StreamOptions& options() const { return options_; }

  bool is_stream() const {
    try {
      deploy::stream_of(graph_, options_);
      return true;
    } catch (const InputError&) {
      return false;
    }
  }

 private:
  using Op = deploy::Op;

  std::int64_t frames() const { return shape()[time_]; }

  void add_operation(bool pads) {
    switch (pick(0, 8)) {
      case 0:
        return pool_of_frames();
      case 1:
        return keep(Op::kRelu, shape());
      case 2:
        return bend();
      case 3:
        return pads ? residual_of_frames() : cropped_residual();
      case 4:
        return turn();
      case 5:
        return pick(0, 1) == 0 ? drop_frames() : bend();
      default:
        return pads ? causal(convolved()) : valid(convolved());
    }
  }

  // A convolution's kernel, dilation and groups along time.
  struct Kernel {
    std::int64_t size, dilation, stride;
    bool depthwise;
    std::int64_t reach() const { return (size - 1) * dilation; }
  };

  Kernel convolved() {
    Kernel kernel{pick(1, 4), pick(1, 2), frames() > 16 ? pick(1, 2) : 1, pick(0, 2) == 0};
    while (kernel.reach() >= frames()) --kernel.size;
    return kernel;
  }

  void valid(const Kernel& kernel, std::int64_t padding = 0, std::int64_t outputs = 0) {
    const Shape in = shape();
    const std::size_t other = 1 - time_;
    deploy::Node node = make_node(Op::kConv2d, {last_}, pick_activation());
    auto& geometry = node.as<Conv2dGeometry>();
    geometry.stride[time_] = kernel.stride;
    geometry.dilation[time_] = kernel.dilation;
    geometry.padding[time_] = padding;
    geometry.groups = kernel.depthwise ? in[2] : 1;
    if (outputs == 0) outputs = kernel.depthwise ? in[2] * pick(1, 2) : pick(1, 8);
    Shape weight{outputs, in[2] / geometry.groups, 1, 1};
    weight[2 + time_] = kernel.size;
    weight[2 + other] = outputs == in[2] ? 1 : std::min(in[other], pick(1, 2));
    geometry.padding[other] = weight[2 + other] == 1 ? 0 : pick(0, 1);
    const auto s = conv2d_shape(batched(in), weight, geometry);
    node.weights = weights(weight);
    stride_ *= kernel.stride;
    last_ = finish(node, {s.out_h(), s.out_w(), outputs});
  }

  // Padding before the first frame alone: as a node of its own, or on both sides, whose end is cut.
  void causal(const Kernel& kernel, std::int64_t outputs = 0) {
    const Shape in = shape();
    if (pick(0, 1) == 0) {
      deploy::Node pad = make_node(Op::kPad, {last_});
      pad.as<Border>().before.assign(3, 0);
      pad.as<Border>().before[time_] = kernel.reach();
      Shape out = in;
      out[time_] += kernel.reach();
      last_ = finish(pad, out, graph_.values[last_].quantization);
      return valid(kernel, 0, outputs);
    }
    valid(kernel, kernel.reach(), outputs);
    const std::int64_t causal_frames = (in[time_] - 1) / kernel.stride + 1;
    slice_frames(0, 1, std::min(causal_frames, frames()));
  }

  void slice_frames(std::int64_t first, std::int64_t step, std::int64_t count) {
    deploy::Node node = make_node(Op::kSlice, {last_});
    node.as<deploy::Positions>() = {std::vector<std::int64_t>(shape().size(), 0),
                                    std::vector<std::int64_t>(shape().size(), 1)};
    node.as<deploy::Positions>().first[time_] = first;
    node.as<deploy::Positions>().steps[time_] = step;
    Shape out = shape();
    out[time_] = count;
    last_ = finish(node, out, graph_.values[last_].quantization);
  }

  // The last frames of all, or every second one.
  void drop_frames() {
    const std::int64_t first = pick(0, 2), step = frames() > 16 ? pick(1, 2) : 1;
    if (frames() < 8) return;
    stride_ *= step;
    slice_frames(first, step, (frames() - first - 1) / step + 1);
  }

  void residual_of_frames() {
    const std::size_t shortcut = last_;
    causal({pick(1, 3), pick(1, 3), 1, false}, shape()[2]);
    add_to(shortcut);
  }

  // What is added to frames that a convolution left out, after it or before.
  void cropped_residual() {
    const std::size_t whole = last_;
    const Kernel kernel{3, 1, 1, false};
    if (frames() < 6) return;
    valid(kernel, 0, shape()[2]);
    const std::size_t convolved = last_;
    const std::int64_t count = frames();
    last_ = whole;
    slice_frames(pick(0, 2), 1, count);
    add_to(convolved);
  }

  void add_to(std::size_t other) {
    const Shape out = shape();
    last_ = finish(make_node(Op::kAdd, {last_, other}, pick_activation()), out);
  }

  // Rows become columns.
  void turn() {
    deploy::Node node = make_node(Op::kPermute, {last_});
    node.as<AxisOrder>().order = {1, 0, 2};
    const Shape in = shape();
    last_ = finish(node, {in[1], in[0], in[2]}, graph_.values[last_].quantization);
    time_ = 1 - time_;
  }

  void pool_of_frames() {
    if (frames() < 4) return;
    const Op op = pick(0, 1) == 0 ? Op::kMaxPool2d : Op::kAvgPool2d;
    deploy::Node node = make_node(op, {last_});
    auto& window = node.as<Pool2dGeometry>();
    window.kernel[time_] = pick(2, 3);
    window.kernel[1 - time_] = 1;
    window.stride = {1, 1};
    window.stride[time_] = frames() > 16 ? pick(1, 2) : 1;
    window.padding = {0, 0};
    const auto s = pool2d_shape("pool", batched(shape()), window);
    stride_ *= window.stride[time_];
    last_ = finish(node, {s.out_h(), s.out_w(), s.in_channels}, graph_.values[last_].quantization);
  }

  void end(bool pads) {
    if (pads) slice_frames(frames() - 1, 1, 1);
    switch (pick(0, 3)) {
      case 0:
        last_ = finish(make_node(Op::kGlobalAvgPool, {last_}), {shape()[2]});
        break;
      case 1:
        return add_linear(3, kernels::Activation::kNone);  // an output for each frame
      default:
        keep(Op::kFlatten, {shape_size(shape())});
    }
    add_linear(5, pick_activation());
    add_linear(3, kernels::Activation::kNone);
  }

  std::size_t time_ = 0;     // the dimension of the last value
  std::int64_t stride_ = 1;  // of all layers
  deploy::StreamOptions options_;
};

}  // namespace steelyard::testing
