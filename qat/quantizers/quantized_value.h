// The integer form of a tensor, carried with its float value through the network.
#pragma once

#include <array>
#include <memory>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/visit_codes.h"  // IWYU pragma: export
#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/fixed_point.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "steelyard/observers/qparam_tensors.h"

namespace steelyard::qat {

using observers::QParamTensors;

// Codes with the parameters they were made with: value = (code - zero_point) * scale.
struct QuantizedValue {
  Tensor codes;           // i8 or u8, i32 where they are wide; the shape of the value
  QParamTensors qparams;  // [1], on the codes' device; nothing changes them
  kernels::CodeRange range;
  // There are several scales and zero points, each of equally many consecutive codes or, where they
  // are not 0, of a block of so many rows and columns: what only a layer reads that made them
  // itself.
  bool dynamic = false;
  std::array<std::int64_t, 2> block{0, 0};
  kernels::Rounding rounding = kernels::Rounding::kFloat;  // of integers to these codes

  // Whether codes have more than 8 bits (qat/forms/wide_codes.h).
  bool wide() const { return codes.dtype() == DType::kI32; }
  // Scale and zero point as numbers; waits for a GPU.
  float host_scale() const { return static_cast<float>(qparams.scale.item()); }
  std::int32_t host_zero_point() const {
    return static_cast<std::int32_t>(qparams.zero_point.item());
  }
};

// Codes of weights with what straight-through backward and the product's scale need.
struct WeightCodes {
  Tensor codes;  // i8, the shape of the weight
  Tensor mask;   // packed, undefined where not recorded or applied elsewhere
  // One, or one per output channel or group of its weights; nothing changes them. The zero points
  // are undefined where all are 0.
  QParamTensors qparams;
  int bits = 8;
  kernels::CodeRange range{-128, 127};  // that the codes are in
  // What an integer product with these weights takes, [outputs] each; else undefined.
  Tensor product_scale;  // f32: float(s_x * s_w)
  Tensor bias;           // i32 codes of that scale; undefined without a bias
  // What a GPU's product reads instead of the codes (kernels/integer_product); else undefined.
  Tensor ordered, sums;
};

// The companion of a variable that carries codes.
struct QuantizedCompanion : Companion {
  explicit QuantizedCompanion(QuantizedValue v) : value(std::move(v)) {}
  QuantizedValue value;
};
// The companion of float weights that carry codes, for a product in float.
struct WeightCompanion : Companion {
  explicit WeightCompanion(WeightCodes w) : codes(std::move(w)) {}
  WeightCodes codes;
};

// The codes of `x`, or null when it has none.
std::shared_ptr<const QuantizedValue> quantized(const Variable& x);

// A plan between the values and the codes, whose scales are given.
kernels::QuantDescriptor descriptor_of(const QuantizedValue& value,
                                       kernels::QuantOperation operation);

// f32 values of the codes.
Tensor dequantized(const QuantizedValue& value);
Tensor dequantized(const WeightCodes& weight);

// A variable that carries the codes; its float value is computed only if someone reads it.
Variable make_variable(QuantizedValue value);
Variable make_weight(WeightCodes codes);

}  // namespace steelyard::qat
