#include "steelyard/runtime/interpreter.h"

#include <functional>
#include <stdexcept>

#include "steelyard/framework/data/normalization.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/ops/linear_map.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

void require_inputs(const Tensor& inputs) {
  if (inputs.defined()) return;
  throw std::invalid_argument("[interpreter] expected inputs, got an undefined tensor");
}

// A node may be any, its values may be of another graph.
void require_values(const Graph& graph, const Node& node, const std::vector<Tensor>& values) {
  if (values.size() != graph.values.size()) {
    throw std::invalid_argument("[interpreter] expected the " +
                                std::to_string(graph.values.size()) + " values of the graph, got " +
                                std::to_string(values.size()));
  }
  validate_operands(node);
  if (node.output >= values.size()) {
    fail(node, "expected one of " + std::to_string(values.size()) + " values as output, got " +
                   std::to_string(node.output));
  }
  for (const std::size_t input : node.inputs) {
    if (input < values.size() && values[input].defined()) continue;
    fail(node, "expected inputs that have a tensor, got value " + std::to_string(input));
  }
}

}  // namespace

Interpreter::Interpreter(Graph graph, Engine engine)
    : graph_(std::move(graph)), engine_(engine), last_reader_(graph_.values.size(), 0) {
  validate(graph_);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    for (const std::size_t input : graph_.nodes[i].inputs) last_reader_[input] = i;
  }
  last_reader_[graph_.output] = graph_.nodes.size();
  if (engine_ == Engine::kReference) return;
  for (const Node& node : graph_.nodes) prepared_.push_back(prepared_weights(graph_, node));
}

Tensor Interpreter::run(const Tensor& inputs) const {
  std::vector<Tensor> values(graph_.values.size());
  values[graph_.input] = inputs;
  execute(values, /*keep=*/false, fault_errors_);
  return dequantized(graph_.values[graph_.output], values[graph_.output]);
}

Tensor Interpreter::run_raw(const Tensor& inputs) const {
  require_inputs(inputs);
  if (inputs.dtype() != graph_.preprocessing.dtype) {
    throw std::invalid_argument("[interpreter] expected inputs of " +
                                std::string(dtype_name(graph_.preprocessing.dtype)) + ", got " +
                                std::string(dtype_name(inputs.dtype())));
  }
  return run(normalized(inputs, graph_.preprocessing.normalization));
}

std::vector<Tensor> Interpreter::run_all(const Tensor& inputs) const {
  std::vector<Tensor> values(graph_.values.size());
  values[graph_.input] = inputs;
  execute(values, /*keep=*/true, /*fault_errors=*/false);
  return values;
}

void Interpreter::require_numbers(std::size_t value, const std::vector<Tensor>& values) const {
  const Tensor& tensor = values[value];
  if (graph_.values[value].quantization || tensor.size() == 0) return;
  std::int64_t count = 0;
  kernels::run(kernels::CountNan{.n = tensor.size(), .x = tensor.data<float>(), .count = &count});
  if (count == 0) return;
  throw std::invalid_argument("[interpreter] expected numbers, got " + std::to_string(count) +
                              " NaN among the " + std::to_string(tensor.size()) + " values of " +
                              graph_.values[value].name);
}

void Interpreter::execute(std::vector<Tensor>& values, bool keep, bool fault_errors) const {
  const Tensor& inputs = values[graph_.input];
  require_inputs(inputs);
  Shape expected = graph_.values[graph_.input].shape;
  expected.insert(expected.begin(), inputs.rank() > 0 ? inputs.dim(0) : 0);
  if (inputs.dtype() != DType::kF32 || inputs.shape() != expected) {
    throw std::invalid_argument("[interpreter] expected f32 inputs " + shape_string(expected) +
                                ", got " + std::string(dtype_name(inputs.dtype())) + " " +
                                shape_string(inputs.shape()));
  }
  if (fault_errors) require_numbers(graph_.input, values);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (fault_errors && graph_.values[node.output].quantization) {
      for (const std::size_t input : node.inputs) require_numbers(input, values);
    }
    values[node.output] = run_node(node, values);
    for (const std::size_t input : node.inputs) {
      if (!keep && last_reader_[input] == i) values[input] = Tensor();
    }
  }
}

const PreparedWeights* Interpreter::prepared(const Node& node) const {
  const Node* const first = graph_.nodes.data();
  const bool own =
      std::less_equal<>()(first, &node) && std::less<>()(&node, first + prepared_.size());
  return own ? prepared_[static_cast<std::size_t>(&node - first)].get() : nullptr;
}

Tensor Interpreter::run_node(const Node& node, const std::vector<Tensor>& values) const {
  require_values(graph_, node, values);
  const Value& output = graph_.values[node.output];
  Shape shape = output.shape;
  shape.insert(shape.begin(), values[node.inputs[0]].dim(0));
  Tensor result =
      Tensor::empty(shape, output.quantization ? output.quantization->dtype : DType::kF32);
  const Operands operands{graph_, node, values, result, prepared(node)};
  if (result.size() == 0) return result;
  const OpInfo& info = op_info(node.op);
  const bool fast = engine_ == Engine::kFast && info.fast != nullptr && info.fast(operands);
  if (!fast) info.reference(operands);
  return result;
}

}  // namespace steelyard::deploy
