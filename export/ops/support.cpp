#include "steelyard/export/ops/support.h"

#include <stdexcept>

namespace steelyard::deploy {

std::string about(const Node& node, const std::string& what) {
  return "[graph] " + node.name + " (" + op_name(node.op) + "): " + what;
}

void fail(const Node& node, const std::string& what) {
  throw std::invalid_argument(about(node, what));
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

Tensor dequantized(const Value& value, const Tensor& tensor) {
  if (!value.quantization) return tensor;
  const Quantization& q = *value.quantization;
  Tensor real = Tensor::empty(tensor.shape());
  fill_floats(real, [&](std::int64_t i) {
    return kernels::dequantize_code(static_cast<float>(code_at(tensor, i)),
                                    static_cast<float>(q.zero_point), q.scale);
  });
  return real;
}

}  // namespace steelyard::deploy
