// The common part of linear, conv2d and conv_transpose2d in records and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/qat/forms/integer_product.h"

namespace steelyard::deploy {

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

// The weights of the product in a TFLite file, their scales along `axis`, as a tensor of `type`.
std::int32_t tflite_weight(TfliteNodes& nodes, const Node& node,
                           const std::vector<std::int8_t>& codes, std::vector<std::int32_t> shape,
                           std::int32_t axis, TfliteType type);

// The bias of the product in a TFLite file, as its next input: zeros without one, because LiteRT
// needs one.
void add_tflite_bias(TfliteNodes& nodes, const Node& node, std::vector<std::int32_t>& inputs);

// Weights [O, C/groups, KH, KW] as [O, KH, KW, C/groups], or as [KH, KW, O] where each channel has
// outputs of its own.
std::vector<std::int8_t> ordered_weights(const Tensor& weight, bool depthwise);

// A convolution in ONNX.
void conv2d_onnx(OnnxNodes& nodes, const Node& node, const std::string& output);

// The names of the ONNX tensors that the product reads: input, weight and, if there is one, bias.
std::vector<std::string> linear_map_operands(OnnxNodes& nodes, const Node& node);

}  // namespace steelyard::deploy
