#include "steelyard/export/fast_ops.h"

#include <array>

#include "steelyard/kernels/fake_quantize.h"
#include "steelyard/kernels/integer.h"
#include "steelyard/kernels/integer_pool/integer_pool.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::deploy {
namespace {

using qat::CodeOf;
using qat::visit_codes;

Shape batched_input(const Operands& op) { return op.input(0).shape(); }

// acc = exact sums of (x - zero point) * w.
void multiply(const Operands& op, const Tensor& w, const Tensor& acc) {
  const Tensor& x = op.input(0);
  const std::int32_t* zero_point = &op.input_value(0).quantization->zero_point;
  visit_codes(x.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    if (op.node.op == Op::kConv2d) {
      kernels::integer_conv2d(conv2d_shape(batched_input(op), w.shape(), op.node.conv),
                              x.data<Code>(), zero_point, w.data<std::int8_t>(),
                              acc.data<std::int32_t>());
    } else {
      kernels::integer_matmul(x.size() / w.dim(1), w.dim(0), w.dim(1), x.data<Code>(), zero_point,
                              w.data<std::int8_t>(), acc.data<std::int32_t>());
    }
  });
}

// The same for weights with zero points: see qat::multiply_codes().
void accumulate(const Operands& op, const Tensor& acc) {
  const Weights& weights = *op.node.weights;
  multiply(op, weights.weight, acc);
  if (weights.zero_points.empty()) return;
  const std::int64_t channels = acc.dim(-1);
  Shape shape = weights.weight.shape();
  shape[0] = op.node.op == Op::kConv2d ? op.node.conv.groups : 1;
  Shape sums_shape = acc.shape();
  sums_shape.back() = shape[0];
  const Tensor sums = Tensor::empty(sums_shape, DType::kI32);
  multiply(op, Tensor::full(shape, 1, DType::kI8), sums);
  const std::vector<std::int32_t> zero_points(weights.zero_points.begin(),
                                              weights.zero_points.end());
  kernels::run(kernels::SubtractZeroPoints{.rows = acc.size() / channels,
                                           .columns = channels,
                                           .groups = shape[0],
                                           .zero_points = channels,
                                           .sums = sums.data<std::int32_t>(),
                                           .zero_point = zero_points.data(),
                                           .acc = acc.data<std::int32_t>()});
}

void linear_map(const Operands& op) {
  const Weights& weights = *op.node.weights;
  const Tensor acc = Tensor::empty(op.output().shape(), DType::kI32);
  accumulate(op, acc);
  std::vector<float> product_scales;
  for (const float s : weights.scales) {
    product_scales.push_back(op.input_value(0).quantization->scale * s);
  }
  kernels::Requantize rule;
  rule.channels = weights.weight.dim(0);
  rule.rows = acc.size() / rule.channels;
  const std::int32_t* bias = weights.bias.defined() ? weights.bias.data<std::int32_t>() : nullptr;
  const auto& q = op.output_value().quantization;
  if (!q) {
    kernels::run(kernels::DequantizeAccumulators{.op = rule,
                                                 .acc = acc.data<std::int32_t>(),
                                                 .bias = bias,
                                                 .product_scale = product_scales.data(),
                                                 .out = op.output().data<float>()});
    return;
  }
  rule.activation = op.node.activation;
  visit_codes(q->dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::RequantizeAccumulators<Code>{.op = rule,
                                                       .acc = acc.data<std::int32_t>(),
                                                       .bias = bias,
                                                       .product_scale = product_scales.data(),
                                                       .scale = &q->scale,
                                                       .zero_point = &q->zero_point,
                                                       .range = q->range,
                                                       .codes = op.output().data<Code>(),
                                                       .mask = nullptr});
  });
}

void quantize(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  visit_codes(q.dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::quantize(kernels::ChannelLayout::per_tensor(op.output().size()), q.range,
                      op.input(0).data<float>(), &q.scale, &q.zero_point, op.output().data<Code>(),
                      nullptr, nullptr);
  });
}

void add(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  const auto operand = [&](std::size_t i) {
    const Quantization& in = *op.input_value(i).quantization;
    return kernels::QuantizedOperand{&in.scale, &in.zero_point};
  };
  visit_codes(op.input(0).dtype(), [&](auto* tag_a) {
    visit_codes(op.input(1).dtype(), [&](auto* tag_b) {
      visit_codes(q.dtype, [&](auto* tag) {
        using A = CodeOf<decltype(tag_a)>;
        using B = CodeOf<decltype(tag_b)>;
        using Y = CodeOf<decltype(tag)>;
        kernels::run(kernels::RequantizeAdd<A, B, Y>{.n = op.output().size(),
                                                     .activation = op.node.activation,
                                                     .a = op.input(0).data<A>(),
                                                     .of_a = operand(0),
                                                     .b = op.input(1).data<B>(),
                                                     .of_b = operand(1),
                                                     .scale = &q.scale,
                                                     .zero_point = &q.zero_point,
                                                     .range = q.range,
                                                     .codes = op.output().data<Y>(),
                                                     .mask = nullptr});
      });
    });
  });
}

// The output's code of every byte that can be a code of the input.
std::array<std::int8_t, 256> code_table(const Quantization& in, const Quantization& out) {
  std::array<std::int8_t, 256> table{};
  const auto grid = kernels::make_affine(out.range, out.scale, out.zero_point);
  for (int byte = 0; byte < 256; ++byte) {
    const int code = in.dtype == DType::kI8 ? static_cast<std::int8_t>(byte) : byte;
    const float real = kernels::dequantize_code(static_cast<float>(code),
                                                static_cast<float>(in.zero_point), in.scale);
    table[static_cast<std::size_t>(byte)] =
        static_cast<std::int8_t>(kernels::quantize_value(real, grid));
  }
  return table;
}

void concat(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  const std::int64_t width = op.output().dim(-1);
  auto* to = static_cast<std::int8_t*>(op.output().raw());
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    const Tensor& x = op.input(part);
    const auto table = code_table(*op.input_value(part).quantization, q);
    const auto* codes = static_cast<const std::uint8_t*>(x.raw());
    const std::int64_t columns = x.dim(-1);
    for (std::int64_t i = 0; i < x.size(); ++i)
      to[i / columns * width + i % columns] = table[codes[i]];
    to += columns;
  }
}

void max_pool(const Operands& op) {
  visit_codes(op.output().dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(
        kernels::MaxPool<Code>{.shape = pool2d_shape("max_pool2d", batched_input(op), op.node.pool),
                               .x = op.input(0).data<Code>(),
                               .y = op.output().data<Code>(),
                               .argmax = nullptr});
  });
}

void average_pool(const Operands& op) {
  const Quantization& in = *op.input_value(0).quantization;
  const Quantization& q = *op.output_value().quantization;
  Pool2dGeometry geometry = op.node.pool;
  if (op.node.op == Op::kGlobalAvgPool) {
    geometry = {{op.input(0).dim(1), op.input(0).dim(2)}, {1, 1}, {0, 0}};
  }
  const kernels::Pool2dShape shape = pool2d_shape("avg_pool2d", batched_input(op), geometry);
  const Tensor sums = Tensor::empty(op.output().shape(), DType::kI32);
  visit_codes(in.dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::IntegerWindowSums<Code>{.shape = shape,
                                                  .x = op.input(0).data<Code>(),
                                                  .zero_point = &in.zero_point,
                                                  .sums = sums.data<std::int32_t>()});
  });
  using Kind = kernels::Average::Kind;
  const kernels::Average average{op.node.op == Op::kGlobalAvgPool ? Kind::kGlobal : Kind::kWindow,
                                 shape.kernel_h * shape.kernel_w};
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
}

}  // namespace

bool run_fast(const Operands& op) {
  const bool codes_in = op.input_value(0).quantization.has_value();
  const bool codes_out = op.output_value().quantization.has_value();
  if (op.output().size() == 0) return true;
  switch (op.node.op) {
    case Op::kQuantize:
      quantize(op);
      return true;
    case Op::kLinear:
    case Op::kConv2d:
      if (!op.node.weights->integer()) return false;
      linear_map(op);
      return true;
    case Op::kAdd:
      if (!codes_out) return false;
      add(op);
      return true;
    case Op::kConcat:
      if (!codes_out) return false;
      concat(op);
      return true;
    case Op::kMaxPool2d:
      if (!codes_in) return false;
      max_pool(op);
      return true;
    case Op::kAvgPool2d:
    case Op::kGlobalAvgPool:
      if (!codes_out) return false;
      average_pool(op);
      return true;
    case Op::kRelu:
    case Op::kRelu6:
    case Op::kFlatten:
      return false;
  }
  return false;
}

}  // namespace steelyard::deploy
