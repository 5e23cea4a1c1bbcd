// Graphs of one operation in fixed point, with any codes and quantization, for comparisons with
// other programs.
#pragma once

#include <span>
#include <string_view>

#include "tests/export/random_graph.h"

namespace steelyard::testing {

// What profiles of fixed point have, each by itself; a ReLU or ReLU6 may be fused.
inline constexpr std::string_view kFixedOperations[] = {"conv2d",
                                                        "depthwise_conv2d",
                                                        "grouped_conv2d",
                                                        "conv_transpose2d",
                                                        "linear",
                                                        "linear_of_one_output",
                                                        "lstm",
                                                        "add",
                                                        "mul",
                                                        "concat",
                                                        "max_pool2d",
                                                        "avg_pool2d",
                                                        "global_avg_pool",
                                                        "softmax",
                                                        "sigmoid",
                                                        "tanh",
                                                        "hardswish",
                                                        "leaky_relu",
                                                        "relu",
                                                        "pad",
                                                        "resize",
                                                        "reshape",
                                                        "flatten",
                                                        "permute",
                                                        "slice"};

// Those with weights.
inline constexpr auto kFixedProducts = std::span(kFixedOperations).first<7>();

class OperationGraph : public RandomGraph {
 public:
  // `operation` is one of kFixedOperations. Some operations read what others make.
  OperationGraph(std::string_view operation, unsigned seed, kernels::Rounding rounding,
                 int weight_bits = 8)
      : RandomGraph(seed, rounding, weight_bits) {
    graph_.name = operation;
    extremes_ = true;
    batch_ = 24;
    add(operation);
    graph_.output = last_;
  }

 private:
  using Op = deploy::Op;

  void add(std::string_view operation) {
    if (operation == "linear") return linear(pick(2, 24));
    if (operation == "linear_of_one_output") return linear(1);
    if (operation == "lstm") return lstm();
    if (operation == "softmax") return softmax();
    if (operation == "add" || operation == "mul" || operation == "concat") return pair(operation);
    const std::int64_t most = operation == "conv_transpose2d" ? 14 : 16;  // larger ones do not grow
    begin({pick(5, most), pick(5, most), pick(1, 12)});
    const std::int64_t channels = shape()[2];
    if (operation == "conv2d") return conv(pick(1, 4), pick(1, 3), pick_activation(), 1);
    if (operation == "depthwise_conv2d") {
      return conv(pick(1, 4), pick(1, 3), pick_activation(), channels);
    }
    if (operation == "grouped_conv2d") {
      const std::int64_t groups = channels % 3 == 0 ? 3 : channels % 2 == 0 ? 2 : 1;
      return conv(pick(1, 3), pick(1, 2), pick_activation(), groups);
    }
    if (operation == "conv_transpose2d") return upsample();
    if (operation == "max_pool2d") return pool(Op::kMaxPool2d);
    if (operation == "avg_pool2d") return pool(Op::kAvgPool2d);
    if (operation == "global_avg_pool") {
      last_ = finish(make_node(Op::kGlobalAvgPool, {last_}), {channels});
      return;
    }
    if (operation == "relu") return keep(Op::kRelu, shape());
    if (operation == "flatten") return keep(Op::kFlatten, {shape_size(shape())});
    if (operation == "pad") return move(Op::kPad);
    if (operation == "resize") return move(Op::kResize);
    if (operation == "permute") return move(Op::kPermute);
    if (operation == "slice") return move(Op::kSlice);
    if (operation == "reshape") return reshape();
    function(operation);
  }

  void begin(const Shape& input) {
    graph_.values.push_back({"input", input, {}});
    deploy::Quantization q = signed_shares();
    q.scale = std::exp2(uniform(-9, 2));
    const std::int32_t ends[] = {-128, 0, 127};
    q.zero_point = static_cast<std::int32_t>(pick(0, 2) == 0 ? ends[pick(0, 2)] : pick(-128, 127));
    inputs_ = Tensor::empty(batched(input));
    for (float& x : inputs_.span<float>()) {
      x = static_cast<float>(pick(-128, 127) - q.zero_point) * q.scale;
    }
    last_ = finish(make_node(Op::kQuantize, {0}), input, q);
  }

  void linear(std::int64_t outputs) {
    pick(0, 1) == 0 ? begin({pick(1, 200)}) : begin({pick(2, 20), pick(1, 60)});
    add_linear(outputs, pick_activation());
  }

  // Gates over their whole range, and cells that reach the ends of theirs now and then.
  void lstm() {
    const std::int64_t length = pick(1, 24), inputs = pick(1, 40), units = pick(1, 24);
    begin({length, inputs});
    deploy::Node node = make_node(Op::kFixedLstm, {last_});
    // Sums of so many products are about 2^-5 to 2 for codes as they come.
    const auto with_one_scale = [&](std::int64_t columns, float code) {
      deploy::Weights w = weights({4 * units, columns});
      const float size = 64 * 64 * code * std::sqrt(static_cast<float>(columns));
      w.scales.assign(w.scales.size(), std::exp2(uniform(-5, 2)) / size);
      return w;
    };
    deploy::Quantization q = signed_shares();
    q.scale = std::exp2(uniform(-9, -6));
    const std::int64_t most = pick(0, 3) == 0 ? 127 : 40;
    q.zero_point = static_cast<std::int32_t>(pick(-most, most));
    const float in_scale = graph_.values[last_].quantization->scale;
    node.weights = with_one_scale(inputs, in_scale);
    node.recurrent = with_one_scale(units, q.scale);
    node.recurrent->bias = {};
    node.weights->bias = Tensor::empty({4 * units}, DType::kI32);
    for (std::int32_t& code : node.weights->bias.span<std::int32_t>()) {
      code = static_cast<std::int32_t>(uniform(-2, 4) / (in_scale * node.weights->scales.front()));
    }
    last_ = finish(node, {length, units}, q);
  }

  void softmax() {
    pick(0, 1) == 0 ? begin({pick(2, 120)}) : begin({pick(2, 20), pick(2, 60)});
    last_ = finish(make_node(Op::kSoftmax, {last_}), shape(), shares());
  }

  void function(std::string_view operation) {
    deploy::Node node = make_node(deploy::find_op(operation)->op, {last_});
    std::optional<deploy::Quantization> q;
    if (operation == "sigmoid") q = shares();
    if (operation == "tanh") q = signed_shares();
    if (operation == "leaky_relu") node.as<NegativeSlope>().slope = uniform(0, 1.5F);
    last_ = finish(node, shape(), q);
  }

  void reshape() {
    const Shape in = shape();
    const Shape forms[] = {{in[0] * in[1], in[2]}, {in[2], in[0] * in[1]}, {shape_size(in)}};
    deploy::Node node = make_node(Op::kReshape, {last_});
    node.as<NewShape>().shape = forms[pick(0, 2)];
    keep_as(node, node.as<NewShape>().shape);
  }

  void keep_as(const deploy::Node& node, const Shape& out) {
    last_ = finish(node, out, graph_.values[last_].quantization);
  }

  // Some channels of a value.
  std::size_t channels_of(std::size_t value, std::int64_t first, std::int64_t count) {
    last_ = value;
    Shape out = shape();
    out[2] = count;
    deploy::Node node = make_node(Op::kSlice, {value});
    node.as<deploy::Positions>() = {{0, 0, first}, {1, 1, 1}};
    keep_as(node, out);
    return last_;
  }

  // Of two halves of the channels, the second on a grid of its own.
  void pair(std::string_view operation) {
    const std::int64_t channels = pick(1, 6);
    begin({pick(3, 14), pick(3, 14), 2 * channels});
    const std::size_t input = last_, first = channels_of(input, 0, channels);
    channels_of(input, channels, channels);
    function("leaky_relu");
    std::size_t second = last_;
    const Shape in = shape();
    if (operation == "add") {
      last_ = finish(make_node(Op::kAdd, {first, second}, pick_activation()), in);
    } else if (operation == "concat") {
      last_ = finish(make_node(Op::kConcat, {second, first}), {in[0], in[1], 2 * channels});
    } else {
      if (pick(0, 1) == 0) {  // a factor of each channel
        deploy::Node whole = make_node(Op::kAvgPool2d, {second});
        whole.as<Pool2dGeometry>() = {{in[0], in[1]}, {1, 1}, {0, 0}};
        keep_as(whole, {1, 1, channels});
        second = last_;
      }
      last_ = finish(make_node(Op::kMul, {first, second}), in);
    }
  }
};

}  // namespace steelyard::testing
