// A deployed model as data: nodes in order, the tensors between them, and their quantization.
//
// It holds what was trained, not how: integer weights with their scales, int32 biases,
// one quantization per tensor. The interpreter runs it, and every export writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/data/images/transform_options.h"
#include "steelyard/framework/data/normalization.h"
#include "steelyard/framework/data/tables/table_options.h"
#include "steelyard/framework/data/target_kind.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/fixed_point.h"
#include "steelyard/kernels/qparams.h"
#include "steelyard/runtime/node_options.h"
#include "steelyard/runtime/op_list.h"

namespace steelyard::deploy {

// An error in a graph's weights, not in its form: the same graph with other weights may be valid.
class WeightFault : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Scale and zero point of a tensor's codes, which lie in `range` and are stored as s8 or u8, those
// of 9 to 16 bits as s32.
struct Quantization : kernels::QParams<float> {
  kernels::CodeRange range;
  DType dtype = DType::kU8;
  kernels::Rounding rounding = kernels::Rounding::kFloat;  // of integers to them
  bool operator==(const Quantization&) const = default;

  // Whether codes have more than 8 bits: what is rounded to them is a real value
  // (docs/numerics.md).
  bool wide() const { return dtype == DType::kI32; }
  // Whether integers become codes in fixed point; then they are all s8.
  bool fixed_point() const { return kernels::is_fixed_point(rounding); }
  // All codes of as many bytes.
  kernels::CodeRange whole_range() const {
    if (dtype == DType::kI8) return {-128, 127};
    if (dtype == DType::kU8) return {0, 255};
    return range.qmin < 0 ? kernels::CodeRange{-32768, 32767} : kernels::CodeRange{0, 65535};
  }
};

// Whether the integer result of a product or sum is converted to a real value before it becomes
// codes: true if one of the quantizations is wide.
inline bool rounds_reals(const Quantization& input, const std::optional<Quantization>& output) {
  return input.wide() || (output && output->wide());
}

// A tensor between nodes. Codes where it has a quantization, f32 elsewhere. Images are [H, W, C].
struct Value {
  std::string name;  // of the node that makes it; "input" for the model's
  Shape shape;       // of one sample
  std::optional<Quantization> quantization;
};

enum class Op {
#define STEELYARD_OP(enumerator, row) enumerator,
  STEELYARD_DEPLOYED_OPS(STEELYARD_OP)
#undef STEELYARD_OP
};

enum class ProductKind { kInteger, kFloat };

// The parameters of a linear map, of codes or of floats. A scale and zero point belong to an output
// channel or to each of equal groups of consecutive codes within one. Integer products: codes and,
// with a scale for each channel, a bias of scale float(s_x * s_w); with groups, whose sums are
// scaled each and then added, an f32 bias. Float products: f32 bias; codes stand for
// float(code - zero point) * scale.
struct Weights {
  ProductKind product = ProductKind::kFloat;
  Tensor weight;                         // i8 or f32 [O, ...]
  int bits = 8;                          // of the codes
  std::vector<float> scales;             // [O] or [O * groups]; empty for f32
  std::vector<std::int8_t> zero_points;  // one per scale; empty where all are 0
  Tensor bias;                           // i32 or f32 [O]; undefined without one

  bool integer() const { return product == ProductKind::kInteger; }
  bool has_codes() const { return weight.dtype() == DType::kI8; }
  bool has_groups() const { return static_cast<std::int64_t>(scales.size()) > weight.dim(0); }
  // Integers throughout, what follows the product included.
  bool one_scale_per_channel() const { return integer() && !has_groups(); }
  // Codes that share a scale.
  std::int64_t group_size() const {
    return scales.empty() ? 0 : weight.size() / static_cast<std::int64_t>(scales.size());
  }
  // The zero point that belongs to a scale; 0 without zero points.
  std::int32_t zero_point(std::size_t scale) const {
    return zero_points.empty() ? 0 : zero_points[scale];
  }
};

// Whether two tensors have the same elements, or are both undefined.
bool same_elements(const Tensor& a, const Tensor& b);
bool same_weights(const Weights& a, const Weights& b);
// As same_weights(), whatever the biases are.
bool same_weight(const Weights& a, const Weights& b);

// f32 values of the weights.
Tensor real_weight(const Weights& weights);

// An operand that is no value: f32. `place` counts the operands of the operation, values too.
struct Constant {
  std::size_t place = 0;
  Tensor value;
};

// Dimensions of samples are counted from 0, the batch's left out.
struct Node {
  Op op = Op::kFlatten;
  std::string name;                 // the module's path: "layer1.0.conv1"
  std::vector<std::size_t> inputs;  // indices of values
  std::size_t output = 0;           // index of a value
  kernels::Activation activation = kernels::Activation::kNone;  // fused: linear, conv, add
  NodeOptions options = {};  // the alternative that op_info(op).options has
  std::optional<Weights> weights;
  std::optional<Weights> recurrent = {};  // of the output of the step before, without a bias
  std::vector<Constant> constants = {};   // in the order of their places

  // Its options. Throws std::bad_variant_access where it is an operation with others.
  template <typename T>
  const T& as() const {
    return std::get<T>(options);
  }
  template <typename T>
  T& as() {
    return std::get<T>(options);
  }
};

// The name and layout of an input or output in an ONNX file.
struct Port {
  std::string name;
  std::string batch = "N";
  bool channels_last = false;  // images as [N, H, W, C]; else [N, C, H, W]
  DType dtype = DType::kF32;   // of an input that holds whole numbers: i32, i64
  // Dimensions of a sample that may have any size, and what they are called, or "".
  std::map<std::int64_t, std::string> free = {};
  std::int64_t batch_axis = 0;  // which of the file's dimensions the batch is
};

// The columns of a table that are the features, and what its other columns are.
struct TableFeatures {
  TableOptions options;
  std::vector<TableColumn> columns;
};

// One of several inputs or outputs of an ONNX file: where its values lie in the model's input or
// output, and their shape, images as [H, W, C].
struct PartPort {
  Port port;
  std::int64_t first = 0;
  Shape shape;
};

// The preprocessing that turns the data into the model's f32 input.
struct Preprocessing {
  DType dtype = DType::kF32;  // of the data: u8 is scaled by 1/255 first
  Normalization normalization;
  std::optional<ImageTransforms> transforms = {};  // of images, before all else
  std::optional<TableFeatures> table = {};         // where the data are rows of a table
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  // each after the nodes whose outputs it reads
  std::size_t input = 0;
  std::size_t output = 0;
  Preprocessing preprocessing;
  TargetKind target = TargetKind::kClass;     // what the outputs are scores of, or values
  std::int64_t characters = 0;                // that texts consist of, the blank included
  std::vector<std::string> class_names = {};  // of the classes, labels or characters; may be empty
  Port input_port{"input"};
  // Instead of input_port, where the input is read by input_part operations alone.
  std::vector<PartPort> input_ports = {};
  Port output_port{"output"};
  // Instead of output_port, where the last node is output_parts: one for each of its inputs.
  std::vector<PartPort> output_ports = {};
  // Graphs of this network for samples with other sizes of the dimensions that its ports have free;
  // empty where none is. An ONNX file leaves them free if its nodes are the same for all.
  std::vector<std::shared_ptr<const Graph>> resized = {};
  // The digest of the checkpoint's model from which it was made, written to files; may be empty.
  std::string model_sha256;
};
inline constexpr const char* kModelKey = "model_sha256";  // in the metadata of files

const char* op_name(Op op);

// The name of the first node with the weights of `node`, under which files have them: a layer that
// is used at several places has one set of weights.
const std::string& home_of_weights(const Graph& graph, const Node& node);
// The index of the first node with the weight of `node`, whatever their biases are: those of one
// layer have other scales at each place, as its inputs have.
std::size_t home_of_weight(const Graph& graph, const Node& node);

// Throws std::invalid_argument naming the node unless indices, shapes, dtypes and parameters fit
// together: what every reader and the interpreter rely on.
void validate(const Graph& graph);

// Bits that a weight code of `bits` bits takes in the integer model's file.
constexpr int stored_bits(int bits) { return bits <= 2 ? 2 : bits <= 4 ? 4 : 8; }

// Bytes of weights, scales and biases as the integer model's file holds them.
std::int64_t parameter_bytes(const Graph& graph);

}  // namespace steelyard::deploy
