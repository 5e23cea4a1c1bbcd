// Codes of 9 to 16 bits in ONNX: sums of products that are exact integers, as real values.
//
// ONNX Runtime would dequantize such codes and add floats in an order of its own. ConvInteger and
// MatMulInteger, whose operands are bytes, add the products of the high and of the low bytes
// exactly. Weights are written as UINT8, 128 above their codes: such products are exact on every
// processor, and ONNX Runtime 1.30 fails where it turns the INT8 weights of two operations into
// UINT8 by itself.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "steelyard/export/onnx/onnx_nodes.h"

namespace steelyard::deploy {

struct RealSum {
  std::string operation;  // ConvInteger or MatMulInteger
  std::string weights;    // an initializer of UINT8
  std::string weight_zero_point;
  std::vector<OnnxAttribute> attributes{};
  std::string bias{};             // an initializer of INT64; "" for none
  std::span<const float> scales;  // that the sums are multiplied by
  Shape channel_shape;            // of the scales, to match the output
};

// Writes `output` = float(sum + bias) * scale for the node's input.
void add_real_sum(OnnxNodes& nodes, const Node& node, const RealSum& sum,
                  const std::string& output);

// Whether a linear map is such a sum: of integers, with wide codes on either side.
bool has_real_sums(const OnnxNodes& nodes, const Node& node);

// The linear map of `codes`, its weights in the order and shape that the operation wants.
void add_real_products(OnnxNodes& nodes, const Node& node, const std::string& operation,
                       const std::vector<std::int8_t>& codes, const Shape& shape,
                       const std::vector<OnnxAttribute>& attributes, const std::string& output);

// Why a graph has no ONNX form, whatever its parameters are; "" where it has.
std::string onnx_refusal(const Graph& graph);

}  // namespace steelyard::deploy
