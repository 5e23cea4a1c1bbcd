#include "steelyard/runtime/ops/support.h"

#include <numeric>
#include <stdexcept>
#include <vector>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/activation/activation.h"
#include "steelyard/runtime/ops/products/products.h"

namespace steelyard::deploy {

std::string about(const Node& node, const std::string& what) {
  return "[graph] " + node.name + " (" + op_name(node.op) + "): " + what;
}

void fail(const Node& node, const std::string& what) {
  throw std::invalid_argument(about(node, what));
}

void validate_operands(const Node& node) {
  const OpInfo& info = op_info(node.op);
  const std::size_t operands = node.inputs.size() + node.constants.size();
  const bool right = info.inputs == 0
                         ? !node.inputs.empty()
                         : operands <= info.inputs && operands + info.optional >= info.inputs;
  expect(right && !node.inputs.empty(), node, "wrong number of inputs");
  expect(node.constants.empty() || info.takes_constants, node, "has no constants");
  std::size_t after = 0;
  for (const Constant& constant : node.constants) {
    expect(constant.place >= after && constant.place < operands && constant.value.defined() &&
               constant.value.dtype() == DType::kF32,
           node, "its constants are f32 operands in order");
    after = constant.place + 1;
  }
}

void require_weights(const Node& node) {
  if (!node.weights) return;
  const Tensor& weight = node.weights->weight;
  expect(weight.size() == 0 || weight.raw() != nullptr, node,
         "its weights are with the interpreter that packs them");
}

void require_bytes(const Graph& graph, const Node& node) {
  for (const std::size_t value : {node.inputs[0], node.output}) {
    const auto& q = graph.values[value].quantization;
    expect(!q || !q->wide(), node, "has codes of at most 8 bits");
  }
}

Shape batched(const Shape& sample) {
  Shape shape = sample;
  shape.insert(shape.begin(), 1);
  return shape;
}

const Tensor* constant_at(const Node& node, std::size_t place) {
  for (const Constant& constant : node.constants) {
    if (constant.place == place) return &constant.value;
  }
  return nullptr;
}

std::size_t input_at(const Node& node, std::size_t place) {
  std::size_t before = 0;
  for (const Constant& constant : node.constants) before += constant.place < place ? 1 : 0;
  return place - before;
}

Tensor real_operand(const Operands& op, std::size_t place) {
  if (const Tensor* constant = constant_at(op.node, place)) return *constant;
  const std::size_t i = input_at(op.node, place);
  return dequantized(op.input_value(i), op.input(i));
}

Tensor dequantized(const Value& value, const Tensor& tensor) {
  if (!value.quantization) return tensor;
  Tensor real = Tensor::empty(tensor.shape());
  dequantize(value, tensor, real.data<float>());
  return real;
}

void dequantize(const Value& value, const Tensor& tensor, float* to) {
  if (!value.quantization) {
    std::copy_n(tensor.data<float>(), tensor.size(), to);
    return;
  }
  const Quantization& q = *value.quantization;
  visit_all_codes(tensor.dtype(), [&](auto* tag) {
    const auto* const codes = tensor.data<CodeOf<decltype(tag)>>();
    fill(to, tensor.size(),
         [codes, zero_point = static_cast<float>(q.zero_point), scale = q.scale](std::int64_t i) {
           return kernels::dequantize_code(static_cast<float>(codes[i]), zero_point, scale);
         });
  });
}

Tensor byte_table(const Graph& graph, const Node& node) {
  const auto& in = graph.values[node.inputs[0]].quantization;
  const auto& out = graph.values[node.output].quantization;
  if (!in || !out || in->wide() || out->wide()) return Tensor();
  const Tensor bytes = Tensor::empty({kBytes}, in->dtype);
  Tensor codes = Tensor::empty({kBytes}, out->dtype);
  auto* const x = static_cast<std::uint8_t*>(bytes.raw());
  std::iota(x, x + kBytes, std::uint8_t{0});
  std::vector<Tensor> values(graph.values.size());
  values[node.inputs[0]] = bytes;
  op_info(node.op).reference({graph, node, values, codes});
  return codes;
}

bool map_bytes(const Operands& op) {
  Tensor made;  // for a node that is not the interpreter's
  if (op.prepared == nullptr && op.output().size() > kBytes) made = byte_table(op.graph, op.node);
  const Tensor& table = op.prepared != nullptr ? op.prepared->table : made;
  if (!table.defined()) return false;
  kernels::run(kernels::MapBytes{.n = op.output().size(),
                                 .x = static_cast<const std::uint8_t*>(op.input(0).raw()),
                                 .table = static_cast<const std::uint8_t*>(table.raw()),
                                 .y = static_cast<std::uint8_t*>(op.output().raw())});
  return true;
}

kernels::CodeRange range_of(std::span<const std::int8_t> codes) {
  std::int8_t least = INT8_MAX, most = INT8_MIN;
#pragma omp simd reduction(min : least) reduction(max : most)
  for (std::size_t i = 0; i < codes.size(); ++i) {
    least = codes[i] < least ? codes[i] : least;
    most = codes[i] > most ? codes[i] : most;
  }
  return {least, most};
}

double dot(const float* row, const float* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += double{row[i]} * double{x[i]};
  return sum;
}

}  // namespace steelyard::deploy
