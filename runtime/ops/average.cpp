// The mean of windows (padding counts as zero and in the divisor) and of whole images.
#include <algorithm>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/runtime/ops/pools.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/windows.h"

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
  const kernels::CodeGrid<float> grid = grid_of(*op.output_value().quantization);
  if (rounds_reals(in, op.output_value().quantization)) {
    const float factor = average_factor(in, count);
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

}  // namespace

OpInfo avg_pool2d_op() {
  return {.op = Op::kAvgPool2d,
          .name = "avg_pool2d",
          .fixed_point = true,
          .rounds_floats = true,
          .options = Pool2dGeometry{},
          .shape = pool_shape,
          .check = check_windows,
          .reference = window_reference,
          .fast = window_fast};
}

OpInfo global_avg_pool_op() {
  return {.op = Op::kGlobalAvgPool,
          .name = "global_avg_pool",
          .fixed_point = true,
          .rounds_floats = true,
          .shape = global_shape,
          .check = check_codes,
          .reference = global_reference,
          .fast = global_fast};
}

}  // namespace steelyard::deploy
