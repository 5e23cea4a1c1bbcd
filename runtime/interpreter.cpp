#include "steelyard/runtime/interpreter.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "steelyard/framework/data/normalizers.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/support.h"
#include "steelyard/runtime/workspace.h"

namespace steelyard::deploy {

// Makes f32 inputs of data as a dataset holds it.
class RawInput {
 public:
  explicit RawInput(const Preprocessing& preprocessing)
      : channels_(std::max<std::int64_t>(std::ssize(preprocessing.normalization.mean), 1)),
        normalizer_(normalizer_of(preprocessing, channels_)) {}

  void write(const void* raw, std::int64_t size, float* to) const {
    std::visit(
        [&](const auto& normalizer) {
          using Raw = typename std::decay_t<decltype(normalizer)>::Value;
          normalize(normalizer, static_cast<const Raw*>(raw), to, size / channels_, channels_);
        },
        normalizer_);
  }

 private:
  using Normalizer = std::variant<ByteNormalizer, FloatNormalizer>;

  static Normalizer normalizer_of(const Preprocessing& preprocessing, std::int64_t channels) {
    if (preprocessing.dtype == DType::kU8) {
      return ByteNormalizer(preprocessing.normalization, channels);
    }
    return FloatNormalizer(preprocessing.normalization, channels);
  }

  std::int64_t channels_;  // 1 where all values are treated alike
  Normalizer normalizer_;
};

namespace {

// A workspace for as long as a run.
class Borrowed {
 public:
  Borrowed(SpareWorkspaces& spare, const Graph& graph, std::int64_t batch)
      : spare_(spare), workspace_(spare.take(graph, batch)) {}
  ~Borrowed() { spare_.give_back(std::move(workspace_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  std::vector<Tensor>& values() { return workspace_->values(); }

 private:
  SpareWorkspaces& spare_;
  std::unique_ptr<Workspace> workspace_;
};

// Another tensor in the place of one, for as long.
class Given {
 public:
  Given(Tensor& place, const Tensor& given) : place_(place), kept_(given) {
    std::swap(place_, kept_);
  }
  ~Given() { std::swap(place_, kept_); }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

 private:
  Tensor& place_;
  Tensor kept_;
};

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
    : graph_(std::move(graph)), engine_(engine), spare_(std::make_shared<SpareWorkspaces>()) {
  validate(graph_);
  raw_input_ = std::make_shared<RawInput>(graph_.preprocessing);
  if (engine_ == Engine::kReference) return;
  for (Node& node : graph_.nodes) {
    prepared_.push_back(engine_ == Engine::kLean ? lean_node(graph_, node)
                                                 : prepared_node(graph_, node));
  }
}

void Interpreter::require_own_graph() const {
  if (!spare_) throw std::logic_error("[interpreter] it was moved from and has no graph");
}

Tensor Interpreter::run(const Tensor& inputs) const {
  require_inputs(inputs, DType::kF32);
  Borrowed workspace(*spare_, graph_, inputs.dim(0));
  const Given input(workspace.values()[graph_.input], inputs);
  execute(workspace.values(), fault_errors_);
  const Tensor& output = workspace.values()[graph_.output];
  Tensor real = Tensor::empty(output.shape());
  dequantize(graph_.values[graph_.output], output, real.data<float>());
  return real;
}

Tensor Interpreter::run_raw(const Tensor& inputs) const {
  require_inputs(inputs, graph_.preprocessing.dtype);
  Shape shape = graph_.values[graph_.output].shape;
  shape.insert(shape.begin(), inputs.dim(0));
  Tensor outputs = Tensor::empty(shape);
  run_raw(inputs.dim(0), inputs.raw(), outputs.data<float>());
  return outputs;
}

void Interpreter::run_raw(std::int64_t samples, const void* inputs, float* outputs) const {
  require_own_graph();
  if (samples < 0) {
    throw std::invalid_argument("[interpreter] expected 0 samples or more, got " +
                                std::to_string(samples));
  }
  if (samples > 0 && (inputs == nullptr || outputs == nullptr)) {
    throw std::invalid_argument("[interpreter] expected inputs and outputs, got null");
  }
  if (samples == 0) return;
  Borrowed workspace(*spare_, graph_, samples);
  std::vector<Tensor>& values = workspace.values();
  const Tensor& input = values[graph_.input];
  raw_input_->write(inputs, input.size(), input.data<float>());
  execute(values, fault_errors_);
  dequantize(graph_.values[graph_.output], values[graph_.output], outputs);
}

std::int64_t Interpreter::workspace_bytes(std::int64_t samples) const {
  require_own_graph();
  return plan_memory(graph_, samples).bytes;
}

std::vector<Tensor> Interpreter::run_all(const Tensor& inputs) const {
  require_inputs(inputs, DType::kF32);
  std::vector<Tensor> values(graph_.values.size());
  values[graph_.input] = inputs;
  for (const Node& node : graph_.nodes) values[node.output] = run_node(node, values);
  return values;
}

void Interpreter::require_inputs(const Tensor& inputs, DType dtype) const {
  require_own_graph();
  if (!inputs.defined()) {
    throw std::invalid_argument("[interpreter] expected inputs, got an undefined tensor");
  }
  const Shape& sample = graph_.values[graph_.input].shape;
  const Shape& shape = inputs.shape();
  if (inputs.dtype() == dtype && shape.size() == sample.size() + 1 &&
      std::equal(sample.begin(), sample.end(), shape.begin() + 1)) {
    return;
  }
  Shape expected = sample;
  expected.insert(expected.begin(), inputs.rank() > 0 ? inputs.dim(0) : 0);
  throw std::invalid_argument("[interpreter] expected " + std::string(dtype_name(dtype)) +
                              " inputs " + shape_string(expected) + ", got " +
                              std::string(dtype_name(inputs.dtype())) + " " + shape_string(shape));
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

void Interpreter::execute(const std::vector<Tensor>& values, bool fault_errors) const {
  if (fault_errors) require_numbers(graph_.input, values);
  for (const Node& node : graph_.nodes) {
    if (fault_errors && graph_.values[node.output].quantization) {
      for (const std::size_t input : node.inputs) require_numbers(input, values);
    }
    compute(node, values, values[node.output]);
  }
}

void Interpreter::compute(const Node& node, const std::vector<Tensor>& values,
                          const Tensor& result) const {
  if (result.size() == 0) return;
  const Operands operands{graph_, node, values, result, prepared(node)};
  const OpInfo& info = op_info(node.op);
  const bool fast = engine_ != Engine::kReference && info.fast != nullptr && info.fast(operands);
  if (!fast) info.reference(operands);
}

const PreparedNode* Interpreter::prepared(const Node& node) const {
  const Node* const first = graph_.nodes.data();
  const bool own =
      std::less_equal<>()(first, &node) && std::less<>()(&node, first + prepared_.size());
  return own ? prepared_[static_cast<std::size_t>(&node - first)].get() : nullptr;
}

Tensor Interpreter::run_node(const Node& node, const std::vector<Tensor>& values) const {
  require_own_graph();
  require_values(graph_, node, values);
  const Value& output = graph_.values[node.output];
  Shape shape = output.shape;
  shape.insert(shape.begin(), values[node.inputs[0]].dim(0));
  Tensor result =
      Tensor::empty(shape, output.quantization ? output.quantization->dtype : DType::kF32);
  compute(node, values, result);
  return result;
}

}  // namespace steelyard::deploy
