// Graphs of random operations, shapes and quantization, for tests of whatever reads a graph.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "steelyard/qat/layers/conv_transpose2d_product.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::testing {

// The graph up to the node of its value `output`.
inline deploy::Graph cut_at(deploy::Graph graph, std::size_t output) {
  std::erase_if(graph.nodes, [&](const deploy::Node& node) { return node.output > output; });
  graph.values.resize(output + 1);
  graph.output = output;
  return graph;
}

class RandomGraph {
 public:
  // Codes of `dtype` everywhere; in fixed point i8, of the operations that have such a form.
  RandomGraph(unsigned seed, DType dtype, kernels::Rounding rounding = kernels::Rounding::kFloat,
              int weight_bits = 8)
      : weight_bits_(weight_bits), random_(seed), dtype_(dtype), rounding_(rounding) {
    graph_.name = "random";
    graph_.values.push_back({"input", {pick(5, 14), pick(5, 14), pick(1, 9)}, {}});
    inputs_ = Tensor::empty(batched(graph_.values[0].shape));
    for (float& x : inputs_.span<float>()) x = uniform(-2, 3);
    last_ = finish(make_node(deploy::Op::kQuantize, {0}), graph_.values[0].shape);
    for (int i = 0; i < 6; ++i) add_image_operation();
    if (pick(0, 1) == 0) {
      last_ = finish(make_node(deploy::Op::kGlobalAvgPool, {last_}), {shape()[2]});
    } else {
      keep(deploy::Op::kFlatten, {shape_size(shape())});
    }
    add_linear(7, pick_activation());
    add_linear(4, kernels::Activation::kNone);
    if (fixed_point() && pick(0, 1) == 0 && graph_.values[last_].quantization->scale < 8) {
      last_ = finish(make_node(deploy::Op::kSoftmax, {last_}), shape(), shares());
    }
    graph_.output = last_;
  }

  const deploy::Graph& graph() const { return graph_; }
  const Tensor& inputs() const { return inputs_; }

 protected:
  // Without operations yet.
  RandomGraph(unsigned seed, kernels::Rounding rounding, int weight_bits)
      : weight_bits_(weight_bits), random_(seed), dtype_(DType::kI8), rounding_(rounding) {
    graph_.name = "random";
  }

  std::int64_t pick(std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random_);
  }
  float uniform(float lo, float hi) {
    return std::uniform_real_distribution<float>(lo, hi)(random_);
  }
  kernels::Activation pick_activation() { return static_cast<kernels::Activation>(pick(0, 2)); }
  const Shape& shape() const { return graph_.values[last_].shape; }
  Shape batched(Shape shape) const {
    shape.insert(shape.begin(), batch_);
    return shape;
  }

  static deploy::Node make_node(deploy::Op op, std::vector<std::size_t> inputs,
                                kernels::Activation activation = kernels::Activation::kNone) {
    deploy::Node node;
    node.op = op;
    node.options = deploy::op_info(op).options;
    node.inputs = std::move(inputs);
    node.activation = activation;
    return node;
  }

  bool fixed_point() const { return kernels::is_fixed_point(rounding_); }

  void add_fixed_point_operation() {
    switch (pick(0, 13)) {
      case 0:
        return pool(deploy::Op::kMaxPool2d);
      case 1:
        return pool(deploy::Op::kAvgPool2d);
      case 2:
        return keep(deploy::Op::kRelu, shape());
      case 3:
        return residual();
      case 4:
        return move();
      case 5:
        return join();
      case 6:
        return gate();
      case 7:
        return bend();
      case 8:
        return upsample();
      default:
        return conv(pick(1, 3), pick(1, 2), pick_activation());
    }
  }

  // Another order of the dimensions, some positions, a border, or repeated pixels.
  void move() {
    constexpr deploy::Op kOps[] = {deploy::Op::kPermute, deploy::Op::kSlice, deploy::Op::kPad,
                                   deploy::Op::kResize};
    move(kOps[pick(0, 3)]);
  }
  void move(deploy::Op op) {
    const Shape in = shape();
    deploy::Node node = make_node(op, {last_});
    Shape out = in;
    if (node.op == deploy::Op::kPermute) {
      std::vector<std::int64_t>& order = node.as<AxisOrder>().order;
      order = {0, 1, 2};
      std::shuffle(order.begin(), order.end(), random_);
      for (std::size_t d = 0; d < 3; ++d) out[d] = in[static_cast<std::size_t>(order[d])];
    } else if (node.op == deploy::Op::kSlice) {
      const std::int64_t steps[] = {1, pick(-1, 1) < 0 ? -1 : 2, 1};
      for (std::size_t d = 0; d < 3; ++d) {
        const std::int64_t skipped = in[d] > 4 ? pick(0, 2) : 0;
        out[d] = steps[d] == 2 ? (in[d] - skipped + 1) / 2 : in[d] - skipped;
        node.as<deploy::Positions>().first.push_back(steps[d] < 0 ? in[d] - 1 : skipped);
        node.as<deploy::Positions>().steps.push_back(steps[d]);
      }
    } else if (node.op == deploy::Op::kPad) {
      for (std::int64_t& size : out) {
        node.as<Border>().before.push_back(pick(0, 2));
        size += node.as<Border>().before.back() + pick(0, 1);
      }
    } else {
      node.as<deploy::Repeats>().repeats = {pick(1, 2), pick(1, 2)};
      for (std::size_t d = 0; d < 2; ++d) out[d] *= node.as<deploy::Repeats>().repeats[d];
    }
    last_ = finish(node, out, graph_.values[last_].quantization);
  }

  void add_image_operation() {
    if (fixed_point()) return add_fixed_point_operation();
    switch (pick(0, 12)) {
      case 0:
        return pool(deploy::Op::kMaxPool2d);
      case 1:
        return pool(deploy::Op::kAvgPool2d);
      case 2:
        return keep(pick(0, 1) == 0 ? deploy::Op::kRelu : deploy::Op::kRelu6, shape());
      case 3:
        return residual();
      case 4:
        return join();
      case 5:
        last_ = finish(make_node(deploy::Op::kSigmoid, {last_}), shape());
        return;
      case 6:
        return bend();
      case 7:
        return gate();
      case 8:
        return upsample();
      default:
        return conv(pick(1, 3), pick(1, 2), pick_activation());
    }
  }

  void bend() {
    constexpr deploy::Op kOps[] = {deploy::Op::kHardswish, deploy::Op::kSilu, deploy::Op::kTanh,
                                   deploy::Op::kLeakyRelu};
    constexpr deploy::Op kFixed[] = {deploy::Op::kHardswish, deploy::Op::kLeakyRelu,
                                     deploy::Op::kTanh};
    deploy::Node node = make_node(fixed_point() ? kFixed[pick(0, 2)] : kOps[pick(0, 3)], {last_});
    if (node.op == deploy::Op::kLeakyRelu) node.as<NegativeSlope>().slope = 0.1;
    if (fixed_point() && node.op == deploy::Op::kTanh) {
      if (graph_.values[last_].quantization->scale > 4) return;
      last_ = finish(node, shape(), signed_shares());
    } else {
      last_ = finish(node, shape());
    }
  }

  void conv(std::int64_t kernel, std::int64_t stride, kernels::Activation activation) {
    conv(kernel, stride, activation, pick(0, 2) == 0 ? shape()[2] : 1);
  }
  void conv(std::int64_t kernel, std::int64_t stride, kernels::Activation activation,
            std::int64_t groups) {
    const Shape in = shape();
    deploy::Node node = make_node(deploy::Op::kConv2d, {last_}, activation);
    const std::int64_t dilation = pick(1, 2);
    auto& geometry = node.as<Conv2dGeometry>();
    geometry = {.stride = {stride, 1},
                .padding = {dilation * kernel / 2, pick(0, 1)},
                .dilation = {dilation, 1},
                .groups = groups};
    const std::int64_t out = groups == 1 ? pick(1, 12) : groups * pick(1, 2);
    const Shape weight{out, in[2] / groups, kernel, std::min(in[1], pick(1, 3))};
    const auto s = conv2d_shape(batched(in), weight, geometry);
    node.weights = weights(weight);
    last_ = finish(node, {s.out_h(), s.out_w(), out});
  }

  // A transposed convolution of images that are not too large already.
  void upsample() {
    const Shape in = shape();
    if (in[0] * in[1] > 200) return;
    deploy::Node node = make_node(deploy::Op::kConvTranspose2d, {last_}, pick_activation());
    const std::int64_t groups = !fixed_point() && pick(0, 2) == 0 ? in[2] : 1;
    const std::int64_t stride = pick(1, 3), dilation = fixed_point() ? 1 : pick(1, 2);
    auto& geometry = node.as<ConvTranspose2dGeometry>();
    geometry.conv = {.stride = {stride, pick(1, 2)},
                     .padding = {pick(0, 1), 0},
                     .dilation = {1, dilation},
                     .groups = groups};
    geometry.output_padding = {pick(0, stride - 1), 0};
    const std::int64_t out = groups * pick(1, 3);
    const Shape weight{out, in[2] / groups, pick(2, 3), pick(1, 3)};
    node.weights = weights(weight);
    const auto s = transposed_conv(batched(in), weight, geometry);
    last_ = finish(node, {s.height.out, s.width.out, out});
  }

  void residual() {
    const std::size_t shortcut = last_;
    const Shape in = shape();
    deploy::Node node = make_node(deploy::Op::kConv2d, {last_});
    node.as<Conv2dGeometry>().padding = {1, 1};
    node.weights = weights({in[2], in[2], 3, 3});
    last_ = finish(node, in);
    last_ = finish(make_node(deploy::Op::kAdd, {last_, shortcut}, pick_activation()), in);
  }

  // Joins a convolution, what it read, and one of the values of the same size before.
  void join() {
    const std::size_t read = last_;
    const Shape in = shape();
    conv(1, 1, pick_activation());
    std::vector<std::size_t> parts{last_, read};
    if (shape()[0] != in[0] || shape()[1] != in[1]) return;
    last_ = finish(make_node(deploy::Op::kConcat, parts), {in[0], in[1], in[2] + shape()[2]});
  }

  // A value times a hard sigmoid of itself, or of its average over all pixels.
  void gate() {
    const std::size_t gated = last_;
    if (fixed_point() && graph_.values[last_].quantization->scale > 4) return;
    const Shape in = shape();
    if (pick(0, 1) == 0) {
      deploy::Node whole = make_node(deploy::Op::kAvgPool2d, {last_});
      whole.as<Pool2dGeometry>() = {{in[0], in[1]}, {1, 1}, {0, 0}};
      std::optional<deploy::Quantization> q;
      if (fixed_point()) q = graph_.values[last_].quantization;
      last_ = finish(whole, {1, 1, in[2]}, q);
    }
    if (fixed_point()) {
      last_ = finish(make_node(deploy::Op::kSigmoid, {last_}), shape(), shares());
    } else {
      deploy::Node node = make_node(deploy::Op::kHardSigmoid, {last_});
      node.as<kernels::Ramp>() = {.slope = 0.2F, .offset = 0.5F};
      last_ = finish(node, shape());
    }
    last_ = finish(make_node(deploy::Op::kMul, {gated, last_}), in);
  }

  void pool(deploy::Op op) {
    const Shape in = shape();
    if (std::min(in[0], in[1]) < 3) return;
    deploy::Node node = make_node(op, {last_});
    auto& window = node.as<Pool2dGeometry>();
    window = {{pick(2, 3), pick(1, 3)}, {pick(1, 2), pick(1, 2)}, {pick(0, 1), 0}};
    if (op == deploy::Op::kAvgPool2d && fixed_point()) window.padding = {0, 0};
    const auto s = pool2d_shape("pool", batched(in), window);
    const Shape out{s.out_h(), s.out_w(), s.in_channels};
    if (op == deploy::Op::kMaxPool2d || fixed_point()) {
      last_ = finish(node, out, graph_.values[last_].quantization);
    } else {
      last_ = finish(node, out);
    }
  }

  void keep(deploy::Op op, const Shape& out) {
    last_ = finish(make_node(op, {last_}), out, graph_.values[last_].quantization);
  }

  void add_linear(std::int64_t out, kernels::Activation activation) {
    deploy::Node node = make_node(deploy::Op::kLinear, {last_}, activation);
    Shape to = shape();
    node.weights = weights({out, to.back()});
    to.back() = out;
    last_ = finish(node, to);
  }

  deploy::Weights weights(const Shape& weight_shape) {
    deploy::Weights w;
    w.product = deploy::ProductKind::kInteger;
    w.bits = weight_bits_;
    w.weight = Tensor::empty(weight_shape, DType::kI8);
    const std::int64_t largest = (std::int64_t{1} << (weight_bits_ - 1)) - 1;
    for (std::int8_t& code : w.weight.span<std::int8_t>()) {
      code = static_cast<std::int8_t>(pick(-largest, largest));
    }
    for (std::int64_t o = 0; o < weight_shape[0]; ++o) {
      const bool outermost = extremes_ && pick(0, 7) == 0;
      w.scales.push_back(uniform(0.0005F, 0.01F) * (outermost ? std::exp2(uniform(-28, 6)) : 1));
    }
    if (pick(0, 3) > 0) {
      const std::int64_t most = extremes_ && pick(0, 3) == 0 ? 1 << 28 : 3000;
      w.bias = Tensor::empty({weight_shape[0]}, DType::kI32);
      for (std::int32_t& code : w.bias.span<std::int32_t>()) {
        code = static_cast<std::int32_t>(pick(-most, most));
      }
    }
    return w;
  }

  // Of values from 0 to 1 in fixed point.
  deploy::Quantization shares() const {
    deploy::Quantization q{{0x1p-8F, -128}, {-128, 127}, DType::kI8};
    q.rounding = rounding_;
    return q;
  }

  // Of values from -1 to 1 in fixed point.
  deploy::Quantization signed_shares() const {
    deploy::Quantization q{{0x1p-7F, 0}, {-128, 127}, DType::kI8};
    q.rounding = rounding_;
    return q;
  }

  // Codes for values in [lo, hi] and a little less; one range in four is narrower than the type.
  deploy::Quantization quantization(float lo, float hi) {
    const std::int32_t first = dtype_ == DType::kI8 ? -128 : 0;
    deploy::Quantization q;
    q.dtype = dtype_;
    q.rounding = rounding_;
    q.range = {first, first + 255};
    if (!fixed_point() && pick(0, 3) == 0) q.range = {first + 128, first + 128 + 15};
    lo = std::min(lo, 0.0F);
    hi = std::max(hi, lo + 0.01F);
    q.scale = uniform(0.7F, 1.1F) * (hi - lo) / static_cast<float>(q.range.qmax - q.range.qmin);
    q.zero_point = std::clamp(q.range.qmin + static_cast<std::int32_t>(-lo / q.scale), q.range.qmin,
                              q.range.qmax);
    if (fixed_point() && pick(0, 3) == 0) {  // of any values: many codes are the outermost
      q.scale *= std::exp2(uniform(-5, 5));
      q.zero_point = static_cast<std::int32_t>(pick(-128, 127));
    }
    return q;
  }

  // Adds the node; its output is quantized to the range that it has on the inputs unless the
  // quantization is given.
  std::size_t finish(deploy::Node node, const Shape& out,
                     std::optional<deploy::Quantization> q = {}) {
    node.name = std::string(deploy::op_name(node.op)) + std::to_string(graph_.nodes.size());
    node.output = graph_.values.size();
    graph_.values.push_back({node.name, out, q});
    graph_.nodes.push_back(node);
    graph_.output = node.output;
    if (q) return node.output;
    if (node.op == deploy::Op::kQuantize) {
      graph_.values.back().quantization = quantization(-2, 3);
      return node.output;
    }
    const auto [lo, hi] = range_of_last();
    graph_.values.back().quantization = quantization(lo, hi);
    return node.output;
  }

  // The values of the last node before they are quantized; an average lies in its input's range.
  std::pair<float, float> range_of_last() const {
    const deploy::Node& node = graph_.nodes.back();
    if (node.op == deploy::Op::kSigmoid || node.op == deploy::Op::kHardSigmoid) return {0.0F, 1.0F};
    if (node.op == deploy::Op::kAvgPool2d || node.op == deploy::Op::kGlobalAvgPool ||
        node.op == deploy::Op::kHardswish || node.op == deploy::Op::kSilu ||
        node.op == deploy::Op::kLeakyRelu) {
      const deploy::Quantization& q = *graph_.values[node.inputs[0]].quantization;
      return {q.scale * static_cast<float>(q.range.qmin - q.zero_point),
              q.scale * static_cast<float>(q.range.qmax - q.zero_point)};
    }
    deploy::Graph unclamped = graph_;  // a float output has no fused activation
    unclamped.nodes.back().activation = kernels::Activation::kNone;
    const Tensor real = deploy::Interpreter(unclamped, deploy::Engine::kFast).run(inputs_);
    const auto [lo, hi] = std::minmax_element(real.span<float>().begin(), real.span<float>().end());
    return {*lo, *hi};
  }

  std::int64_t batch_ = 3;
  int weight_bits_;
  bool extremes_ = false;  // of weights' scales and of biases
  std::mt19937 random_;
  DType dtype_;
  kernels::Rounding rounding_;
  deploy::Graph graph_;
  Tensor inputs_;
  std::size_t last_ = 0;
};

}  // namespace steelyard::testing
