// Softmax and its logarithm along the last dimension: channels of images, features of rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(!in.empty(), node, "expected an input with channels or features");
  return in;
}

void check(const Graph& graph, const Node& node) {
  const auto& in = graph.values[node.inputs[0]].quantization;
  const auto& out = graph.values[node.output].quantization;
  if (!out) return;
  expect(in.has_value(), node, "a quantized softmax needs a quantized operand");
  require_bytes(graph, node);
  const bool fits = (out->scale == 0x1p-8F && out->zero_point == out->range.qmin) ||
                    (out->scale == 0x1p-7F && out->zero_point == 0);
  expect(fits && out->range.qmax - out->range.qmin >= 254, node,
         "shares have steps of 2^-8 from the smallest of 256 codes, or 2^-7 from 0");
  if (!out->fixed_point()) return;
  expect(out->zero_point == -128, node, "in fixed point shares have steps of 2^-8 from -128 on");
  expect(kernels::has_fixed_input(in->scale, kernels::kSoftmaxBits) &&
             graph.values[node.output].shape.back() < 4096,
         node,
         "in fixed point it has at most 4095 columns, and a scale of its input from 2^-26 on");
}

// y = of(x - the row's largest, the row's sum of exp(x - largest)).
template <typename F>
void of_floats(const Operands& op, const F& of) {
  const Tensor input = dequantized(op.input_value(0), op.input(0));
  const std::int64_t columns = op.input(0).dim(-1), rows = op.output().size() / columns;
#pragma omp parallel for
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x = input.data<float>() + row * columns;
    float* y = op.output().data<float>() + row * columns;
    const double largest = *std::max_element(x, x + columns);
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(x[c] - largest);
    for (std::int64_t c = 0; c < columns; ++c) y[c] = static_cast<float>(of(x[c] - largest, sum));
  }
}

void fixed_reference(const Operands& op) {
  const Quantization& in = *op.input_value(0).quantization;
  const kernels::Rounding rounding = op.output_value().quantization->rounding;
  const kernels::FixedInput input = kernels::make_fixed_softmax(in.scale, rounding);
  const std::int64_t columns = op.input(0).dim(-1);
  for (std::int64_t first = 0; first < op.output().size(); first += columns) {
    std::int32_t largest = INT32_MIN, sum = 0;
    for (std::int64_t i = first; i < first + columns; ++i) {
      largest = std::max(largest, code_at(op.input(0), i));
    }
    const auto exponential = [&](std::int64_t i) {
      return kernels::fixed_softmax_exp(code_at(op.input(0), i) - largest, input, rounding);
    };
    for (std::int64_t i = first; i < first + columns; ++i) {
      sum += kernels::fixed_softmax_term(exponential(i));
    }
    const kernels::FixedShare share = kernels::make_fixed_share(sum);
    for (std::int64_t i = first; i < first + columns; ++i) {
      set_code(op.output(), i, std::min(kernels::fixed_share_code(exponential(i), share), 127));
    }
  }
}

void reference(const Operands& op) {
  if (op.output_value().quantization && op.output_value().quantization->fixed_point()) {
    return fixed_reference(op);
  }
  if (!op.output_value().quantization) {
    return of_floats(op, [](double x, double sum) { return std::exp(x) / sum; });
  }
  const Quantization& in = *op.input_value(0).quantization;
  const Quantization& out = *op.output_value().quantization;
  const std::int64_t columns = op.input(0).dim(-1), rows = op.output().size() / columns;
  // exp(-d * s_x) of the distance d to the row's largest code, as an integer.
  const double one = std::min(4294967295.0 / static_cast<double>(columns), 8388607.0);
  std::vector<std::uint64_t> exponential(256);
  for (int d = 0; d < 256; ++d) {
    exponential[static_cast<std::size_t>(d)] = static_cast<std::uint64_t>(
        std::rint(one * std::exp(-static_cast<double>(d) * static_cast<double>(in.scale))));
  }
  const auto steps = static_cast<std::uint64_t>(1.0F / out.scale);
#pragma omp parallel for
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row * columns;
    std::int32_t largest = INT32_MIN;
    for (std::int64_t i = first; i < first + columns; ++i) {
      largest = std::max(largest, code_at(op.input(0), i));
    }
    const auto of = [&](std::int64_t i) {
      return exponential[static_cast<std::size_t>(largest - code_at(op.input(0), i))];
    };
    std::uint64_t sum = 0;
    for (std::int64_t i = first; i < first + columns; ++i) sum += of(i);
    for (std::int64_t i = first; i < first + columns; ++i) {
      const auto share = static_cast<std::int32_t>((of(i) * steps + sum / 2) / sum);
      set_code(op.output(), i, std::min(share + out.zero_point, out.range.qmax));
    }
  }
}

bool fast(const Operands& op) {
  const auto& out = op.output_value().quantization;
  if (!out || out->fixed_point()) return false;
  const Quantization& in = *op.input_value(0).quantization;
  const std::int64_t columns = op.input(0).dim(-1), rows = op.output().size() / columns;
  std::vector<std::uint32_t> table(256);
  kernels::run(kernels::SoftmaxTable{
      .n = 256, .columns = columns, .scale = &in.scale, .table = table.data()});
  visit_codes(in.dtype, [&](auto* tag_in) {
    visit_codes(out->dtype, [&](auto* tag) {
      using In = CodeOf<decltype(tag_in)>;
      using Code = CodeOf<decltype(tag)>;
      kernels::run(kernels::SoftmaxCodes<In, Code>{.rows = rows,
                                                   .columns = columns,
                                                   .x = op.input(0).data<In>(),
                                                   .table = table.data(),
                                                   .scale = &out->scale,
                                                   .zero_point = &out->zero_point,
                                                   .range = out->range,
                                                   .codes = op.output().data<Code>()});
    });
  });
  return true;
}

void check_log(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference_log(const Operands& op) {
  of_floats(op, [](double x, double sum) { return x - std::log(sum); });
}

// A softmax of codes that gives floats.
int version_of_floats(const Graph& graph, const Node& node) {
  const bool codes = graph.values[node.inputs[0]].quantization.has_value();
  return codes && !graph.values[node.output].quantization ? 4 : 0;
}

}  // namespace

OpInfo softmax_op() {
  return {.op = Op::kSoftmax,
          .name = "softmax",
          .fixed_point = true,
          .rounds_floats = true,
          .later_version = version_of_floats,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

OpInfo log_softmax_op() {
  return {.op = Op::kLogSoftmax,
          .name = "log_softmax",
          .rounds_floats = true,
          .graph_version = 10,
          .shape = shape,
          .check = check_log,
          .reference = reference_log};
}

}  // namespace steelyard::deploy
