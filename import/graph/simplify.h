// Replaces the patterns of nodes that exporters write by single operations.
#pragma once

#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

struct SimplifiedModel {
  OnnxModel model;
  std::vector<std::string> outputs;  // the values that model.outputs are, by their names inside
};

// Computes what depends on constants alone, leaves out what does nothing (Identity, Dropout, a
// factor of 1) or what nobody reads, spells Einsum out (einsum.h), keeps the batch in front
// (batch_order.h), and recognises:
//   x * clip(x + 3, 0, 6) / 6, x * HardSigmoid(x)     HardSwish
//   clip(x + 3, 0, 6) / 6                             HardSigmoid
//   x * Sigmoid(x)                                    SiLU
//   x * (1 + Erf(x / sqrt(2))) / 2                    GELU
//   (x - mean) / Sqrt(variance + eps) * gamma + beta  LayerNormalization
//   MatMul or Gemm with a constant, then Add          Linear
//   Linear, Conv or ConvTranspose, then Add           its bias
//   Linear or Conv, then Mul or Div of each output    its weights
SimplifiedModel simplify(OnnxModel model);

}  // namespace steelyard::imports
