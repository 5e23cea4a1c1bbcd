// a [..., m, k] times b [..., k, n] with equal leading dimensions, of codes in integers or of
// floats; or times a matrix of floats that is the same for all of a.
#include <algorithm>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/ordered_product/ordered_product.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  expect(constant_at(node, 0) == nullptr, node, "its first operand is a value");
  const Tensor* matrix = constant_at(node, 1);
  const Shape& a = graph.values[node.inputs[0]].shape;
  const Shape& b = matrix != nullptr ? matrix->shape() : graph.values[node.inputs[1]].shape;
  const bool fits =
      a.size() >= (matrix != nullptr ? 1U : 2U) && b.size() >= 2 && a.back() == b[b.size() - 2] &&
      (matrix != nullptr ? b.size() == 2
                         : a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin()));
  expect(fits, node, "its operands " + shape_string(a) + " and " + shape_string(b) + " do not fit");
  Shape y = a;
  y.back() = b.back();
  return y;
}

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  const bool codes = node.constants.empty() && graph.values[node.inputs[0]].quantization &&
                     graph.values[node.inputs[1]].quantization;
  expect(codes, node, "a quantized product needs quantized operands");
  require_bytes(graph, node);
  expect(!graph.values[node.inputs[1]].quantization->wide(), node, "has codes of at most 8 bits");
  expect(graph.values[node.inputs[0]].shape.back() <= INT32_MAX / (255 * 255), node,
         "its sums can overflow int32");
}

// Calls take(index of the output, sum of product(index in a, index in b)).
template <typename Sum, typename Product, typename Take>
void for_each_sum(const Operands& op, const Product& product, const Take& take) {
  const bool shared = constant_at(op.node, 1) != nullptr;
  const Shape& a = op.input_value(0).shape;
  const std::int64_t k = a.back(), n = op.output().dim(-1);
  const std::int64_t m = shared ? 1 : a[a.size() - 2];
#pragma omp parallel for
  for (std::int64_t i = 0; i < op.output().size(); ++i) {
    const std::int64_t row = i / n, matrix = shared ? 0 : row / m;
    Sum sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += product(row * k + j, (matrix * k + j) * n + i % n);
    take(i, sum);
  }
}

void reference(const Operands& op) {
  const auto& out = op.output_value().quantization;
  if (!out) {
    const Tensor a = real_operand(op, 0), b = real_operand(op, 1);
    return for_each_sum<double>(
        op,
        [&](std::int64_t i, std::int64_t j) {
          return double{a.data<float>()[i]} * double{b.data<float>()[j]};
        },
        [&](std::int64_t i, double sum) {
          op.output().data<float>()[i] = static_cast<float>(sum);
        });
  }
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  const float ratio = of_a.scale * of_b.scale / out->scale;
  const kernels::CodeGrid<float> units = kernels::make_code_grid(out->range, 1.0F, out->zero_point);
  for_each_sum<std::int32_t>(
      op,
      [&](std::int64_t i, std::int64_t j) {
        return (code_at(op.input(0), i) - of_a.zero_point) *
               (code_at(op.input(1), j) - of_b.zero_point);
      },
      [&](std::int64_t i, std::int32_t sum) {
        set_code(op.output(), i, kernels::quantize_value(static_cast<float>(sum) * ratio, units));
      });
}

// Matrices [k, n] of codes as weights [n, k]: unsigned ones less 128.
Tensor turned(const Tensor& codes, std::int64_t matrix, std::int64_t k, std::int64_t n) {
  const Tensor weights = Tensor::empty({n, k}, DType::kI8);
  const std::uint8_t flip = codes.dtype() == DType::kU8 ? 0x80 : 0;
  const auto* const from = static_cast<const std::uint8_t*>(codes.raw()) + matrix * k * n;
  auto* const to = static_cast<std::uint8_t*>(weights.raw());
  for (std::int64_t column = 0; column < n; ++column) {
    for (std::int64_t j = 0; j < k; ++j) {
      to[column * k + j] = static_cast<std::uint8_t>(from[j * n + column] ^ flip);
    }
  }
  return weights;
}

// Codes of a product [m, n] from codes [m, k] and weights: the zero points of these times the sums
// of the rows are subtracted, which are a product with a weight of code 1.
template <typename A, typename Code>
void multiply(const Operands& op, std::int64_t m, const A* a, const Tensor& weights,
              const Tensor& factors, Code* codes) {
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  const Quantization& out = *op.output_value().quantization;
  const std::int64_t n = weights.dim(0), k = weights.dim(1);
  const std::int32_t zero = of_b.zero_point - (of_b.dtype == DType::kU8 ? 128 : 0);
  const Tensor acc = zero == 0 ? Tensor() : Tensor::empty({m, n}, DType::kI32);
  const kernels::IntegerMatmul<A> product{.m = m,
                                          .n = n,
                                          .k = k,
                                          .x = a,
                                          .zero_point = &of_a.zero_point,
                                          .w = weights.data<std::int8_t>(),
                                          .acc = data_or_null<std::int32_t>(acc)};
  const kernels::RequantizeAccumulators<Code> to{.op = {.rows = m, .channels = n},
                                                 .acc = data_or_null<std::int32_t>(acc),
                                                 .bias = nullptr,
                                                 .product_scale = factors.data<float>(),
                                                 .scale = &out.scale,
                                                 .zero_point = &out.zero_point,
                                                 .range = out.range,
                                                 .codes = codes,
                                                 .mask = nullptr};
  if (zero == 0)
    return kernels::run(kernels::RequantizedProduct<kernels::IntegerMatmul<A>, Code>{product, to});
  kernels::run(product);
  const Tensor ones = Tensor::full({1, k}, 1, DType::kI8), sums = Tensor::empty({m}, DType::kI32);
  kernels::IntegerMatmul<A> of_rows = product;
  of_rows.n = 1;
  of_rows.w = ones.data<std::int8_t>();
  of_rows.acc = sums.data<std::int32_t>();
  kernels::run(of_rows);
  kernels::run(kernels::SubtractZeroPoints{.rows = m,
                                           .columns = n,
                                           .groups = 1,
                                           .zero_points = 1,
                                           .sums = sums.data<std::int32_t>(),
                                           .zero_point = &zero,
                                           .acc = acc.data<std::int32_t>()});
  kernels::run(to);
}

void multiply_floats(const Operands& op) {
  const Tensor a = real_operand(op, 0), b = real_operand(op, 1);
  const bool shared = constant_at(op.node, 1) != nullptr;
  const std::int64_t terms = a.dim(-1), columns = b.dim(-1);
  const std::int64_t batch = shared ? 1 : b.size() / (terms * columns);
  kernels::run(kernels::OrderedProduct{.batch = batch,
                                       .rows = a.size() / terms / batch,
                                       .columns = columns,
                                       .terms = terms,
                                       .x = a.data<float>(),
                                       .w = b.data<float>(),
                                       .to_term = columns,
                                       .to_column = 1,
                                       .y = op.output().data<float>()});
}

bool fast(const Operands& op) {
  const auto& out = op.output_value().quantization;
  if (!out && op.input(0).dim(-1) > 0) {
    multiply_floats(op);
    return true;
  }
  if (!out || op.input_value(0).quantization->wide()) return false;
  const std::int64_t k = op.input(0).dim(-1), m = op.output().dim(-2), n = op.output().dim(-1);
  const float factor =
      op.input_value(0).quantization->scale * op.input_value(1).quantization->scale;
  const Tensor factors = Tensor::full({n}, factor);
  visit_codes(op.input(0).dtype(), [&](auto* tag_a) {
    visit_codes(out->dtype, [&](auto* tag) {
      const auto* a = op.input(0).data<CodeOf<decltype(tag_a)>>();
      auto* codes = op.output().data<CodeOf<decltype(tag)>>();
      for (std::int64_t i = 0; i < op.output().size() / (m * n); ++i) {
        multiply(op, m, a + i * m * k, turned(op.input(1), i, k, n), factors, codes + i * m * n);
      }
    });
  });
  return true;
}

}  // namespace

OpInfo matmul_op() {
  return {.op = Op::kMatmul,
          .name = "matmul",
          .inputs = 2,
          .takes_constants = true,
          .rounds_floats = true,
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
