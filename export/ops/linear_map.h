// The common part of linear, conv2d and conv_transpose2d: sums of products with weights, in
// integers or in float.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/windows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/forms/product.h"

namespace steelyard::deploy {

// Checks that weights, scales and bias fit each other, the input and the output, and int32.
void check_weights(const Graph& graph, const Node& node);

// Reads the options and the activation of a recorded product, of integers or of floats.
template <typename Options>
void read_product(const Function& function, Node& node) {
  if (const auto* integer = dynamic_cast<const qat::IntegerProductFunction*>(&function)) {
    node.activation = integer->activation();
    node.options = described<Options>(integer->product());
  } else {
    node.options = described<Options>(function);
  }
}

// The operation as plain loops over patches of the input.
void run_linear_map(const Operands& op, const Windows& windows);

// A node's integer weights as the kernels of training take them, with the scales of its products;
// null where it has none that run_linear_map() below multiplies by.
std::shared_ptr<const qat::WeightCodes> prepared_weights(const Graph& graph, const Node& node);

// The integer product on the exact kernels that training runs; false for a float one.
bool run_linear_map(const Operands& op, const qat::Product& product);

// The factors from sums of its products to codes in fixed point, one for each scale of its weights.
std::vector<kernels::FixedMultiplier> fixed_factors(const Graph& graph, const Node& node);

// The bias of the product in a TFLite file, as its next input: zeros without one, because LiteRT
// needs one.
void add_tflite_bias(TfliteNodes& nodes, const Node& node, std::vector<std::int32_t>& inputs);

// A convolution in ONNX.
void conv2d_onnx(OnnxNodes& nodes, const Node& node, const std::string& output);

// The names of the ONNX tensors that the product reads: input, weight and, if there is one, bias.
std::vector<std::string> linear_map_operands(OnnxNodes& nodes, const Node& node);

}  // namespace steelyard::deploy
