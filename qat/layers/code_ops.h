// Operations on quantized variables that work on the codes and stay integer.
//
// The first group keeps its input's scale and zero point: the tensor's one quantizer is shared. The
// second has a quantizer of its own for its output.
#pragma once

#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// Inputs must carry codes (quantized(x) is not null).
Variable max_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry);
Variable flatten_codes(const Variable& x);
// The mean of each window in fixed point (kernels/fixed_point.h), on its input's grid, s8.
Variable fixed_avg_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry);
Variable activation_codes(const Variable& x, kernels::Activation activation);
// Dropped elements take the code of 0; the others are scaled by 1 / (1 - p) through the scale.
Variable dropout_codes(const Variable& x, const DropoutOptions& options, Rng& rng);

// activation(a + b) of shapes that broadcast, quantized by `output` (docs/numerics.md: what ONNX
// Runtime computes, QLinearAdd).
Variable add_codes(const Variable& a, const Variable& b, kernels::Activation activation,
                   ActivationQuantizer& output, ForwardContext& context);
// The mean of each window (padding counts as zero and in the divisor), quantized by `output`.
Variable avg_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry,
                          ActivationQuantizer& output, ForwardContext& context);
// The mean over all pixels of [N, H, W, C] as [N, C], quantized by `output`.
Variable global_avg_pool_codes(const Variable& x, ActivationQuantizer& output,
                               ForwardContext& context);

}  // namespace steelyard::qat
