// The mean of windows (padding counts as zero and in the divisor) and of whole images.
#include <fmt/core.h>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/pools.h"

namespace steelyard::deploy {
namespace {

// --- windows

std::string window_refusal(const Function& function) {
  return described<AveragePool2d>(function).count_include_pad ? ""
                                                              : "with windows of unequal counts";
}

void read_window(const Function& function, Node& node) {
  node.options = described<AveragePool2d>(function).geometry;
}

// The real average if codes are wide: exact sums, as products with weights of code 1.
void real_average_onnx(OnnxNodes& nodes, const Node& node, const Pool2dGeometry& pool,
                       const std::string& output) {
  const Value& in = nodes.graph().values[node.inputs[0]];
  const auto [height, width] = pool.kernel;
  const std::int64_t channels = in.shape.back();
  const std::vector<std::int8_t> ones(static_cast<std::size_t>(channels * height * width), 1);
  std::vector<OnnxAttribute> attributes = window_attributes(pool);
  attributes.push_back({"group", channels});
  const float factor = average_factor(*in.quantization, height * width);
  const std::int8_t zero = 0;
  add_real_sum(nodes, node,
               {.operation = "ConvInteger",
                .weights = nodes.onnx().codes(node.name + "/weight_codes", OnnxType::kUint8, ones,
                                              {channels, 1, height, width}),
                .weight_zero_point = nodes.onnx().codes(node.name + "/weight_zero_point",
                                                        OnnxType::kUint8, {&zero, 1}, {}),
                .attributes = attributes,
                .scales = {&factor, 1},
                .channel_shape = {}},
               output);
}

bool rounds_reals(const OnnxNodes& nodes, const Node& node) {
  const auto& in = nodes.graph().values[node.inputs[0]].quantization;
  const auto& out = nodes.graph().values[node.output].quantization;
  return in && out && deploy::rounds_reals(*in, out);
}

// Weights of code 1 and scale average_weight_scale(count) on every tap.
void window_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  OnnxGraph& onnx = nodes.onnx();
  if (rounds_reals(nodes, node))
    return real_average_onnx(nodes, node, node.as<Pool2dGeometry>(), output);
  std::vector<OnnxAttribute> attributes = window_attributes(node.as<Pool2dGeometry>());
  if (!nodes.graph().values[node.output].quantization) {
    attributes.push_back({"count_include_pad", std::int64_t{1}});
    onnx.add("AveragePool", {nodes.input(node)}, output, attributes);
    return;
  }
  const auto [height, width] = node.as<Pool2dGeometry>().kernel;
  const std::int64_t channels = nodes.graph().values[node.output].shape.back();
  const float scale = kernels::average_weight_scale(height * width);
  const std::string name = node.name + "/weight";
  const std::vector<std::int8_t> ones(static_cast<std::size_t>(channels * height * width), 1);
  const std::int8_t zero = 0;
  onnx.add("DequantizeLinear",
           {onnx.codes(name + "_codes", OnnxType::kInt8, ones, {channels, 1, height, width}),
            onnx.floats(name + "_scale", {&scale, 1}, {}),
            onnx.codes(name + "_zero_point", OnnxType::kInt8, {&zero, 1}, {})},
           name);
  attributes.push_back({"group", channels});
  onnx.add("Conv", {nodes.input(node), name}, output, attributes);
}

void window_tflite(TfliteNodes& nodes, const Node& node) {
  add_tflite_pool(nodes, node, TfliteOp::kAveragePool2d, 0);  // without padding
}

void window_c(CNodes& nodes, const Node& node) { add_c_pool(nodes, node, "average_pool"); }

// The multipliers that QLinearGlobalAveragePool of ONNX Runtime accepts (1.30, MLAS); it fails on
// others.
void expect_computable(const OnnxNodes& nodes, const Node& node) {
  const Value& in = nodes.graph().values[node.inputs[0]];
  const float multiplier =
      kernels::global_average_multiplier(in.quantization->scale, in.shape[0] * in.shape[1],
                                         nodes.graph().values[node.output].quantization->scale);
  if (multiplier < 0x1p-32F || multiplier >= 256) {
    refuse_onnx(
        node,
        fmt::format("expected a multiplier from 2^-32 to 256, as ONNX Runtime needs it, got {}",
                    multiplier));
  }
}

void global_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const bool codes = nodes.graph().values[node.output].quantization.has_value();
  const std::string image = node.name + "/image";  // [N, C, 1, 1]
  if (rounds_reals(nodes, node)) {
    const Shape& in = nodes.graph().values[node.inputs[0]].shape;
    real_average_onnx(nodes, node, {{in[0], in[1]}, {1, 1}, {0, 0}}, image);
    return nodes.onnx().add("Flatten", {image}, output, {{"axis", std::int64_t{1}}});
  }
  if (codes) expect_computable(nodes, node);
  nodes.onnx().add("GlobalAveragePool", {nodes.input(node)}, image);
  std::string flat = image;
  if (codes) {
    flat = image + "/values";
    nodes.quantize_and_back(node, image, image, flat);
  }
  nodes.onnx().add("Flatten", {flat}, output, {{"axis", std::int64_t{1}}});
}

void global_tflite(TfliteNodes& nodes, const Node& node) {
  const std::vector<std::int32_t> axes{1, 2};
  nodes.add(TfliteOp::kMean, 2, {nodes.input(node), nodes.int32s(node.name + "/axes", axes, {2})},
            nodes.output(node), {.table = 27});
}

void global_c(CNodes& nodes, const Node& node) {
  const Shape& in = nodes.graph().values[node.inputs[0]].shape;
  const Quantization& x = nodes.input_quantization(node);
  const Quantization& q = nodes.output_quantization(node);
  const kernels::FixedMultiplier factor =
      kernels::fixed_mean(x.scale, in[0] * in[1], q.scale, q.rounding);
  CFields fields;
  fields.set("pixels", in[0] * in[1]).set("channels", in[2]).set("in_zero", x.zero_point);
  fields.set("multiplier", factor.multiplier).set("shift", factor.shift);
  fields.set("out_zero", q.zero_point).set("least", q.range.qmin).set("most", q.range.qmax);
  nodes.call("mean", "mean_node", node, fields);
}

}  // namespace

OpForm avg_pool2d_form() {
  return {.op = Op::kAvgPool2d,
          .recorded = {"quantized_avg_pool2d", "avg_pool2d"},
          .in_c_header = true,
          .refusal = window_refusal,
          .read = read_window,
          .onnx = window_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = window_tflite,
          .c = window_c,
          .text = pool_text};
}

OpForm global_avg_pool_form() {
  return {.op = Op::kGlobalAvgPool,
          .recorded = {"quantized_global_avg_pool", "global_avg_pool"},
          .in_c_header = true,
          .onnx = global_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = global_tflite,
          .c = global_c};
}

}  // namespace steelyard::deploy
