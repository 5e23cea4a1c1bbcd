// Features [..., I] times a weight [O, I].
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/linear_map.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/qat/forms/integer_product.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  const auto* integer = dynamic_cast<const qat::IntegerProductFunction*>(&function);
  if (integer != nullptr) node.activation = integer->activation();
}

// [O, I] as [I, O].
std::vector<std::int8_t> turned(const Tensor& codes) {
  std::vector<std::int8_t> values(static_cast<std::size_t>(codes.size()));
  const std::int64_t outputs = codes.dim(0), inputs = codes.dim(1);
  for (std::int64_t i = 0; i < codes.size(); ++i) {
    values[static_cast<std::size_t>(i % inputs * outputs + i / inputs)] =
        codes.data<std::int8_t>()[i];
  }
  return values;
}

void reshape(OnnxNodes& nodes, const std::string& from, const Shape& shape,
             const std::string& output) {
  const std::string sizes =
      nodes.onnx().int64s(output + "/shape", shape, {static_cast<std::int64_t>(shape.size())});
  nodes.onnx().add("Reshape", {from, sizes}, output);
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Tensor& codes = node.weights->weight;
  if (has_real_sums(nodes, node)) {
    return add_real_products(nodes, node, "MatMulInteger", turned(codes),
                             {codes.dim(1), codes.dim(0)}, {}, output);
  }
  std::vector<std::string> operands = linear_map_operands(nodes, node);
  Shape shape = nodes.graph().values[node.output].shape;
  const bool rows = shape.size() > 1;  // which Gemm takes as a matrix
  if (rows) {
    reshape(nodes, operands[0], {-1, codes.dim(1)}, node.name + "/rows");
    operands[0] = node.name + "/rows";
  }
  const std::string product = rows ? node.name + "/product" : output;
  nodes.onnx().add("Gemm", operands, product, {{"transB", std::int64_t{1}}});
  if (!rows) return;
  shape.insert(shape.begin(), -1);
  reshape(nodes, product, shape, output);
}

// The weight [O, I], its columns in the order in which programs have the pixels of the image that
// was flattened.
std::vector<std::int8_t> ordered_weights(const Graph& graph, const Node& node) {
  const Tensor& weight = node.weights->weight;
  std::vector<std::int8_t> codes(weight.span<std::int8_t>().begin(),
                                 weight.span<std::int8_t>().end());
  const Node* flatten = tflite_flattened(graph, node.inputs[0]);
  if (flatten == nullptr) return codes;
  const Shape& image = graph.values[flatten->inputs[0]].shape;
  const std::int64_t channels = image[2], pixels = image[0] * image[1], inputs = weight.dim(1);
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const std::int64_t column = i % inputs;
    const std::int64_t from = column % channels * pixels + column / channels;
    codes[static_cast<std::size_t>(i)] = weight.data<std::int8_t>()[i - column + from];
  }
  return codes;
}

void tflite(TfliteNodes& nodes, const Node& node) {
  const Weights& weights = *node.weights;
  const Shape& shape = weights.weight.shape();
  // TFLite Micro takes a scale for each of several outputs with weights of a byte alone.
  const bool one_scale = weights.scales.size() == 1;
  const TfliteType type = one_scale ? nodes.weight_type(weights) : TfliteType::kInt8;
  std::vector<std::int32_t> inputs{
      nodes.input(node),
      tflite_weight(nodes, node, ordered_weights(nodes.graph(), node),
                    {static_cast<std::int32_t>(shape[0]), static_cast<std::int32_t>(shape[1])}, 0,
                    type)};
  add_tflite_bias(nodes, node, inputs);
  const bool rows = nodes.graph().values[node.output].shape.size() > 1;
  const std::int32_t version = !one_scale ? 12 : type == TfliteType::kInt4 ? 10 : 4;
  nodes.add(
      TfliteOp::kFullyConnected, version, inputs, nodes.output(node),
      {.table = 8, .fields = {{0, 1, tflite_activation(node.activation)}, {2, 1, rows ? 1 : 0}}});
}

void c(CNodes& nodes, const Node& node) {
  const Shape& weight = node.weights->weight.shape();
  const std::int64_t rows = shape_size(nodes.graph().values[node.output].shape) / weight[0];
  CFields fields;
  fields.set("in_h", rows).set("in_c", weight[1]).set("out_c", weight[0]);
  add_c_product(nodes, node, {"linear", ordered_weights(nodes.graph(), node), fields});
}

}  // namespace

OpForm linear_form() {
  return {.op = Op::kLinear,
          .recorded = {"quantized_linear", "linear"},
          .in_c_header = true,
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
