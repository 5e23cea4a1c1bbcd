// The mean of windows (padding counts as zero and in the divisor) and of whole images.
#include <fmt/core.h>

#include <algorithm>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/windows.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::deploy {
namespace {

void check_codes(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization || graph.values[node.inputs[0]].quantization, node,
         "codes are made of codes");
}

void check_sum(const Graph& graph, const Node& node, std::int64_t pixels) {
  const auto& in = graph.values[node.inputs[0]].quantization;
  check_window(node, pixels);
  expect(!in || pixels <= INT32_MAX / std::max(1, in->range.qmax - in->range.qmin), node,
         "its sums can overflow int32");
}

// What sums of `count` codes are multiplied by, and whether they are of windows.
struct Averages {
  float (*multiplier)(float in_scale, std::int64_t count, float out_scale);
  bool windows;
};
constexpr Averages kWindows{kernels::window_average_multiplier, true};
constexpr Averages kImages{kernels::global_average_multiplier, false};

// The code of a sum of `count` codes less their zero points, in fixed point.
std::int32_t fixed_average(const Operands& op, std::int32_t sum, std::int64_t count,
                           const Averages& averages) {
  const Quantization& q = *op.output_value().quantization;
  if (averages.windows) {
    const auto codes = static_cast<std::int32_t>(count);
    return clamped_code(op, kernels::averaged_code(sum + codes * q.zero_point, codes));
  }
  const kernels::FixedMultiplier factor =
      kernels::fixed_mean(op.input_value(0).quantization->scale, count, q.scale, q.rounding);
  return clamped_code(op, kernels::fixed_code(sum, factor, q.zero_point, q.rounding));
}

// The factor from a sum of codes to the real average.
float real_factor(const Quantization& in, std::int64_t count) {
  return kernels::global_average_multiplier(in.scale, count, 1.0F);
}

void reference(const Operands& op, const Windows& windows, const Averages& averages) {
  const Tensor x = op.output_value().quantization ? op.input(0) : real_operand(op, 0);
  const std::int64_t count = windows.kernel[0] * windows.kernel[1];
  const auto each = [&](const auto& read, const auto& take) {
    for_each_window(
        op, windows,
        [&](std::int64_t i, std::int64_t image, std::int64_t oh, std::int64_t ow, std::int64_t c) {
          decltype(read(std::int64_t{})) sum = 0;
          windows.for_each_tap(oh, ow, [&](std::int64_t, std::int64_t pixel) {
            sum += read((image + pixel) * windows.channels + c);
          });
          take(i, sum);
        });
  };
  if (!op.output_value().quantization) {
    each([&](std::int64_t i) { return static_cast<double>(x.data<float>()[i]); },
         [&](std::int64_t i, double sum) {
           op.output().data<float>()[i] = static_cast<float>(sum / static_cast<double>(count));
         });
    return;
  }
  const Quantization& in = *op.input_value(0).quantization;
  const kernels::Affine<float> grid = grid_of(*op.output_value().quantization);
  if (rounds_reals(in, op.output_value().quantization)) {
    const float factor = real_factor(in, count);
    return each([&](std::int64_t i) { return code_at(x, i) - in.zero_point; },
                [&](std::int64_t i, std::int32_t sum) {
                  const float real = kernels::dequantize_sum(sum, factor);
                  set_code(op.output(), i, kernels::quantize_value(real, grid));
                });
  }
  if (op.output_value().quantization->fixed_point()) {
    return each([&](std::int64_t i) { return code_at(x, i) - in.zero_point; },
                [&](std::int64_t i, std::int32_t sum) {
                  set_code(op.output(), i, fixed_average(op, sum, count, averages));
                });
  }
  const float multiplier = averages.multiplier(in.scale, count, grid.scale);
  each([&](std::int64_t i) { return code_at(x, i) - in.zero_point; },
       [&](std::int64_t i, std::int32_t sum) {
         const float code = kernels::requantized_code(sum, multiplier, grid.zero_point);
         set_code(op.output(), i, kernels::to_integer_code(code, grid));
       });
}

bool fast(const Operands& op, const Pool2dGeometry& geometry, kernels::Average::Kind kind) {
  if (!op.output_value().quantization) return false;
  const Quantization& in = *op.input_value(0).quantization;
  const Quantization& q = *op.output_value().quantization;
  if (rounds_reals(in, q)) return false;
  const kernels::Conv2dShape shape = pool2d_shape("avg_pool2d", op.input(0).shape(), geometry);
  const Tensor sums = Tensor::empty(op.output().shape(), DType::kI32);
  visit_codes(in.dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::IntegerWindowSums<Code>{.shape = shape,
                                                  .x = op.input(0).data<Code>(),
                                                  .zero_point = &in.zero_point,
                                                  .sums = sums.data<std::int32_t>()});
  });
  const kernels::Average average{kind, shape.kernel_h * shape.kernel_w};
  if (q.fixed_point()) {
    kernels::run(kernels::FixedRequantizeAverage{.n = sums.size(),
                                                 .rounding = q.rounding,
                                                 .average = average,
                                                 .sums = sums.data<std::int32_t>(),
                                                 .in_scale = &in.scale,
                                                 .scale = &q.scale,
                                                 .zero_point = &q.zero_point,
                                                 .range = q.range,
                                                 .codes = op.output().data<std::int8_t>(),
                                                 .mask = nullptr});
    return true;
  }
  visit_codes(q.dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::RequantizeAverage<Code>{.n = sums.size(),
                                                  .average = average,
                                                  .sums = sums.data<std::int32_t>(),
                                                  .in_scale = &in.scale,
                                                  .scale = &q.scale,
                                                  .zero_point = &q.zero_point,
                                                  .range = q.range,
                                                  .codes = op.output().data<Code>(),
                                                  .mask = nullptr});
  });
  return true;
}

// --- windows

std::string window_refusal(const Function& function) {
  return described<AveragePool2d>(function).count_include_pad ? ""
                                                              : "with windows of unequal counts";
}

void read_window(const Function& function, Node& node) {
  node.options = described<AveragePool2d>(function).geometry;
}

void check_windows(const Graph& graph, const Node& node) {
  const auto& [height, width] = node.as<Pool2dGeometry>().kernel;
  check_sum(graph, node, height * width);
  check_codes(graph, node);
  const auto& out = graph.values[node.output].quantization;
  if (!out || !out->fixed_point()) return;
  expect(out == graph.values[node.inputs[0]].quantization &&
             node.as<Pool2dGeometry>().padding == std::array<std::int64_t, 2>{0, 0},
         node, "in fixed point it has no padding and the quantization of its input");
}

void window_reference(const Operands& op) {
  reference(op, windows_of(op, op.node.as<Pool2dGeometry>()), kWindows);
}

bool window_fast(const Operands& op) {
  return fast(op, op.node.as<Pool2dGeometry>(), kernels::Average::Kind::kWindow);
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
  const float factor = real_factor(*in.quantization, height * width);
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

// --- whole images

Shape global_shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 3 && in[0] * in[1] > 0, node, "expected an image, got " + shape_string(in));
  check_sum(graph, node, in[0] * in[1]);
  return {in[2]};
}

void global_reference(const Operands& op) { reference(op, whole_image(op), kImages); }

bool global_fast(const Operands& op) {
  const Pool2dGeometry whole{{op.input(0).dim(1), op.input(0).dim(2)}, {1, 1}, {0, 0}};
  return fast(op, whole, kernels::Average::Kind::kGlobal);
}

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

OpInfo avg_pool2d_op() {
  return {.op = Op::kAvgPool2d,
          .name = "avg_pool2d",
          .recorded = {"quantized_avg_pool2d", "avg_pool2d"},
          .fixed_point = true,
          .rounds_floats = true,
          .options = Pool2dGeometry{},
          .in_c_header = true,
          .refusal = window_refusal,
          .read = read_window,
          .shape = pool_shape,
          .check = check_windows,
          .reference = window_reference,
          .fast = window_fast,
          .onnx = window_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = window_tflite,
          .c = window_c,
          .text = pool_text};
}

OpInfo global_avg_pool_op() {
  return {.op = Op::kGlobalAvgPool,
          .name = "global_avg_pool",
          .recorded = {"quantized_global_avg_pool", "global_avg_pool"},
          .fixed_point = true,
          .rounds_floats = true,
          .in_c_header = true,
          .shape = global_shape,
          .check = check_codes,
          .reference = global_reference,
          .fast = global_fast,
          .onnx = global_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = global_tflite,
          .c = global_c};
}

}  // namespace steelyard::deploy
