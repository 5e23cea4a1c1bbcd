// Runs a graph on integers, without the training engine's operations.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

struct PreparedNode;
class RawInput;
class SpareWorkspaces;

enum class Engine {
  kReference,  // plain loops over kernels/affine.h or fixed_point.h: the reference for everything
               // else
  kFast,       // the exact integer kernels
  kLean        // the same in less memory: of weights that it packs, graph() has the shapes alone,
               // and what reads their elements throws std::invalid_argument
};

// A graph ready to run. All engines give the same codes; float parts agree up to rounding. Of one
// that was moved from, what runs or plans throws std::logic_error.
class Interpreter {
 public:
  // Throws std::invalid_argument on a graph that validate() refuses.
  explicit Interpreter(Graph graph, Engine engine = Engine::kReference);

  const Graph& graph() const { return graph_; }
  // Whether run() and run_raw() throw where codes would hide that a value is no number. They do
  // unless told otherwise.
  void set_fault_errors(bool on) { fault_errors_ = on; }

  // The output in f32 for inputs [N, ...] in f32, preprocessed; N may be 0. Throws
  // std::invalid_argument when the shape is another, and, naming the value, for NaN among the
  // inputs or where floats become codes (infinities do so as the largest and smallest code), and
  // std::out_of_range for an index that an embedding's table does not have. Several threads may
  // call it.
  Tensor run(const Tensor& inputs) const;
  // The output of run() for data as a dataset holds it: u8 or f32, before preprocessing.
  Tensor run_raw(const Tensor& inputs) const;
  // The same in memory of the caller's: dense inputs of graph().preprocessing.dtype, and f32
  // outputs; null only for 0 samples. The second run of a batch takes no lock, and no memory for
  // values.
  void run_raw(std::int64_t samples, const void* inputs, float* outputs) const;
  // Bytes in which a run of such a batch keeps all values, its input and output among them: parts
  // of them serve again once nothing reads a value any more.
  std::int64_t workspace_bytes(std::int64_t samples) const;
  // Every value, as graph().values: codes i8 or u8 where it is quantized, else f32; NaN too.
  std::vector<Tensor> run_all(const Tensor& inputs) const;
  // The output of one node of the graph, from `values` for its inputs: as run_all() gives them, of
  // one batch. Throws std::invalid_argument where the node's inputs have no values among them, and
  // for a copy of a node whose weights kLean packs.
  Tensor run_node(const Node& node, const std::vector<Tensor>& values) const;

 private:
  void require_own_graph() const;  // throws std::logic_error
  // Throws std::invalid_argument.
  void require_inputs(const Tensor& inputs, DType dtype) const;
  void execute(const std::vector<Tensor>& values, bool fault_errors) const;
  void compute(const Node& node, const std::vector<Tensor>& values, const Tensor& result) const;
  // Throws std::invalid_argument for a NaN.
  void require_numbers(std::size_t value, const std::vector<Tensor>& values) const;
  // Null for one that has nothing prepared, or is not the graph's own.
  const PreparedNode* prepared(const Node& node) const;

  Graph graph_;
  Engine engine_;
  bool fault_errors_ = true;
  std::shared_ptr<const RawInput> raw_input_;
  std::shared_ptr<SpareWorkspaces> spare_;  // of all copies
  // By node, for fast engines; null where there is nothing to prepare.
  std::vector<std::shared_ptr<const PreparedNode>> prepared_;
};

// The f32 form of a value's tensor: itself where it has no codes.
Tensor dequantized(const Value& value, const Tensor& tensor);
// The same in memory of the caller's.
void dequantize(const Value& value, const Tensor& tensor, float* to);

}  // namespace steelyard::deploy
