// The interface for the translations of operations (import/ops/).
//
// A value of rank 3 and more is held as ONNX has it or with its channels, dimension 1, moved to the
// end: convolutions want that. Each operation asks for its inputs as it needs them; a Permute is
// added only there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/import/constants.h"
#include "steelyard/import/extents.h"
#include "steelyard/import/graph/editable_graph.h"
#include "steelyard/import/graph/simplify.h"
#include "steelyard/import/translate.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

// ONNX's dimension at each position of a value as a module gives it.
using Order = std::vector<std::size_t>;

// What a comparison of two values tells: which module Where takes it, and the values' names in the
// file. `holds` is false of its opposite.
struct Compared {
  std::string module;
  std::string x, y;
  bool holds = true;
};

struct ImportedValue {
  ExtentShape shape;                // ONNX's
  std::optional<Constant> known{};  // a constant; the rest belongs to any other
  std::string node = {};            // the node that makes it
  bool channels_last = false;       // how that gives it
  // How that gives it where ONNX has another dimension than the batch first: its dimension at each
  // held position, of which the first is the batch. Else empty.
  Order order = {};
  // The dimension that ONNX has joined with the next one, the batch among them: `shape` has the two
  // apart (joined_batch.cpp).
  std::optional<std::size_t> joined = {};
  // The dimension of which a constant has as many as the batch; of size 1 here.
  std::optional<std::size_t> repeated = {};
  // How far its whole numbers, here those of the first sample, lie from one sample to the next.
  std::int64_t sample_step = 0;
  bool unknown = false;                   // made by what is not supported
  bool whole = false;                     // whole numbers, held as floats
  std::optional<Compared> compared = {};  // true or false; a node gives it when it is asked for
  std::int64_t one_hot = 0;  // of that many classes, if not 0; `node` gives their numbers
  // The image of a global average, whose node is made when it is asked for, and its own name.
  std::string averaged = {};
  std::string label = {};

  std::size_t rank() const { return shape.size(); }
};

// A node for inputs that have the batch apart from what ONNX has joined it with, and which of its
// output's dimensions ONNX has joined with the next.
struct ApartNode {
  OnnxNode node;
  std::size_t joined;
};

// How far the translation of a graph comes: the values that can be outputs, and what stands in the
// way of the others.
struct Reached {
  std::set<std::string> values;
  std::vector<UnsupportedNode> unsupported;
};

// Throws InputError where translate() does before it looks at the nodes.
Reached reach(const OnnxModel& model, const SampleSpec& sample);

class Translator {
 public:
  // `any_size`: in modules for images of any size, where there is a choice.
  Translator(SimplifiedModel model, const SampleSpec& sample, bool any_size);
  Imported run();
  // In the place of run().
  Reached reached();

  // --- for operations; each throws Unsupported

  const OnnxNode& node() const { return *node_; }
  std::int64_t opset() const { return model_.model.opset; }
  bool has_input(std::size_t i) const { return !node_->input(i).empty(); }
  const ImportedValue& input(std::size_t i);
  // The input's value; refuses one that is computed. `what` names it: "weight".
  const Constant& constant(std::size_t i, const char* what);
  const Constant* optional_constant(std::size_t i, const char* what);
  // An attribute that newer operation sets have as input `i`.
  std::vector<std::int64_t> attribute_or_input(const std::string& name, std::size_t i);

  // The node that gives input i as ONNX has it, or with channels last.
  std::string held(std::size_t i, bool channels_last);
  std::string plain(std::size_t i) { return held(i, false); }
  std::string image(std::size_t i) { return held(i, true); }
  // The node that gives input i in any order of ONNX's dimensions.
  std::string held_in(std::size_t i, const Order& order);
  // As it is held, in the order that held_order() says.
  std::string as_held(std::size_t i);
  // Declares the node's output, held as input i is.
  void give_as(std::size_t i, const std::string& module, ExtentShape shape);
  // For what reads rows, the last dimension: the node that gives input i as it is held where that
  // is last, else as ONNX has it; and an output that is held as rows() gives it.
  std::string rows(std::size_t i);
  void give_rows_of(std::size_t i, const std::string& module, ExtentShape shape);
  // Whether anybody reads the node's output.
  bool is_read(std::size_t output) const;
  // The numbers of the classes of input i, which is one-hot, in ONNX's order.
  std::string classes(std::size_t i);
  // The mean over the pixels of an image that is a global average, as [N, C]; "" for other inputs.
  std::string averaged_row(std::size_t i);

  // Adds a module; returns its name.
  std::string add(const std::string& type, std::vector<std::string> inputs, Options options = {});
  // Adds a module with weights, which is called as its weight is where that tells more.
  std::string add_named(const std::string& after, const std::string& type,
                        std::vector<std::string> inputs, Options options);
  template <typename S>
  std::string add(const std::string& type, std::vector<std::string> inputs, const S& options) {
    return add(type, std::move(inputs), stored_options(options));
  }
  template <typename S>
  std::string add_named(const std::string& after, const std::string& type,
                        std::vector<std::string> inputs, const S& options) {
    return add_named(after, type, std::move(inputs), stored_options(options));
  }
  void set_weight(const std::string& module, const std::string& parameter, const Constant& value);
  void set_weight(const std::string& module, const std::string& parameter, const Constant& value,
                  Shape shape);

  // For patterns: the ONNX node that makes a value, the value, and the node that gives it. Null for
  // constants of the file and for values that are not there.
  const OnnxNode* maker(const std::string& value) const;
  const ImportedValue* value(const std::string& name) const;
  const Constant* constant_called(const std::string& name);
  std::string node_of(const std::string& value, bool channels_last);

  // Whether modules for images of any size are asked for, where there is a choice.
  bool any_size() const { return any_size_; }
  // The batch's size where the file fixes it: constants may contain it.
  const std::optional<std::int64_t>& fixed_batch() const { return fixed_batch_; }

  // Notes which dimension of the node's output, which was declared, ONNX has joined with the next.
  void set_joined(std::optional<std::size_t> dimension);
  // Declares a value that no node of the file gives; returns its name.
  std::string keep(ImportedValue value);
  // Declares the node's output.
  void give(ImportedValue value, std::size_t output = 0);
  void give(const std::string& module, ExtentShape shape, bool channels_last) {
    give({.shape = std::move(shape), .node = module, .channels_last = channels_last});
  }

 private:
  void require_ports();
  void declare_inputs(const SampleSpec& sample);
  void translate_nodes();
  void translate_node();
  std::string add_called(const std::string& name, const std::string& type,
                         std::vector<std::string> inputs, Options options);
  const std::string& averaged_row_of(const std::string& name);
  Tensor tensor_of(const Constant& value, Shape shape);
  bool know(const OnnxNode& node);
  bool repeats_over_batch(const OnnxNode& node);
  bool counts_samples(const OnnxNode& node);
  std::optional<std::size_t> read_repeated(const OnnxNode& node);
  std::int64_t sample_step_of(const OnnxNode& node);
  void require_rank(const OnnxNode& node);
  std::optional<ApartNode> with_batch_apart();
  void join_batch(const std::string& name);
  bool reads_whole_numbers(const OnnxNode& node) const;
  const std::string& converted(const std::string& name, const Order& wanted);
  std::string unique(const std::string& wanted);
  void finish_outputs();
  std::string finish_output(const OnnxPort& port, const std::string& name, PartSpec& part);

  SimplifiedModel model_;
  GraphSpec graph_;
  std::map<std::string, std::vector<NamedTensor>> weights_;
  std::map<std::string, std::vector<Tensor>> tensors_;  // of weights_, by Constant::origin
  std::map<std::string, ImportedValue> values_;
  std::map<std::pair<std::string, Order>, std::string> converted_;
  std::set<std::string> names_;
  std::map<std::string, std::size_t> makers_;  // indices of nodes
  std::vector<UnsupportedNode> unsupported_;
  int kept_ = 0;
  const OnnxNode* node_ = nullptr;
  std::optional<std::int64_t> fixed_batch_;
  bool any_size_;
};

// A name of letters, digits and '_'.
std::string legal(const std::string& text);

// The shape that a value has in ONNX.
ExtentShape onnx_shape(const ImportedValue& value);
// Takes the batch apart from what is joined with it in `to`, a shape that a value of the shape
// `from` gets; returns the first of the two dimensions. Nothing where that cannot be.
std::optional<std::size_t> take_batch_apart(const ExtentShape& from, ExtentShape& to);

// ONNX's dimension at each held position of a value, and where a dimension of ONNX is held.
Order held_order(const ImportedValue& value);
std::size_t held_axis(const ImportedValue& value, std::size_t axis);

// --- operations, in import/ops/

// What an operation does with whole numbers that depend on the input.
enum class WholeNumbers {
  kRefused,
  kMoved,  // its outputs are such numbers
  kRead    // it looks itself
};

struct OperationRow {
  std::string op;
  void (*translate)(Translator&);
  std::string note = {};  // what is not supported of it
  std::string domain = {};
  WholeNumbers whole = WholeNumbers::kRefused;
};
// The row of a node's operation, or null; a refusal then says kNotSupported.
const OperationRow* find_operation(const OnnxNode& node);
inline constexpr const char* kNotSupported = "the operation is not supported";

std::vector<OperationRow> layer_operations();
std::vector<OperationRow> elementwise_operations();
std::vector<OperationRow> shape_operations();
std::vector<OperationRow> border_operations();
std::vector<OperationRow> join_operations();
std::vector<OperationRow> window_operations();
std::vector<OperationRow> lookup_operations();
std::vector<OperationRow> choice_operations();
std::vector<OperationRow> recurrent_operations();
std::vector<OperationRow> reduction_operations();
std::vector<OperationRow> function_operations();
std::vector<OperationRow> norm_operations();
std::vector<OperationRow> block_operations();

// The domain of ONNX Runtime's own operations.
inline constexpr const char* kContribDomain = "com.microsoft";
// That of what only training does and ONNX has no operation for; the Python package writes it.
inline constexpr const char* kTrainingDomain = "steelyard.training";

// A constant operand for values that are held in that order, with as many dimensions or more.
Constant laid_out(const Constant& value, const Order& order);
// The order of a Transpose of `rank` dimensions, reversed where it names none.
std::vector<std::int64_t> perm_of(const OnnxNode& transpose, std::size_t rank);
// Declares the output, which `node` gives in that order of ONNX's dimensions.
void give_in_order(Translator& t, const std::string& node, const ExtentShape& shape,
                   const Order& order);
// Declares it to be a module of the rows of input 0, which is held with that dimension last.
void give_along(Translator& t, std::size_t axis, const std::string& type, Options options);
// Declares the node's output to be what comparing inputs 0 and 1 tells. `module`: of Where.
void give_comparison(Translator& t, const std::string& module);
// The value that is 1 where a comparison holds, else 0.
ImportedValue as_numbers(Translator& t, const ImportedValue& condition);
// Declares the node's output to be whether the value of that name is other than 0.
void give_other_than_zero(Translator& t, const std::string& name);
// Declares it to be the sum of inputs 0 and 1 where one is a constant of zeros and -infinities, as
// masks of attention are: a choice of the lowest float. False for other inputs.
bool give_masked(Translator& t);
// Rows of a trainable table at the whole numbers that `node` gives: [..., width] for shape [...].
void give_rows(Translator& t, const std::string& node, const ExtentShape& shape,
               const std::string& name, const Constant& table);
// Positions of a held dimension in any order, as slices that are joined.
std::string picked(Translator& t, const std::string& node, std::size_t axis, std::size_t rank,
                   const std::vector<std::int64_t>& positions);
// A module of a value and a fixed number, or a number for each position of its last dimension.
std::string with_number(Translator& t, const char* type, const std::string& node, float value);
std::string with_features(Translator& t, const char* type, const std::string& node,
                          const Constant& value);
// Gives what several nodes from here backwards compute together, where it knows that (patterns).
bool give_softmax(Translator& t);
bool give_layer_norm(Translator& t);

}  // namespace steelyard::imports
