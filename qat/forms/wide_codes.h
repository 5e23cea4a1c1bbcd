// Codes of more than 8 bits: how layers round to them and multiply them (docs/numerics.md).
#pragma once

#include <functional>

#include "steelyard/kernels/affine.h"
#include "steelyard/qat/forms/product.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// quantize_reals() in a pass, which observes what `activated` gives: activation(real).
QuantizedValue round_reals(const Tensor& real, kernels::Activation activation,
                           const std::function<Tensor()>& activated, ActivationQuantizer& output,
                           Tensor* mask, const ForwardContext& context);

// f32 values float(sum of (x - z_x) * (w - z_w) + bias) * product_scale of wide codes x; the sums
// are exact. `weight` has its product_scale and, if there is one, its bias.
Tensor multiply_wide(const Product& product, const QuantizedValue& x, const WeightCodes& weight);

// The codes whose products share int32 with a bias: those of x, but of wide ones, whose sums do
// not, only themselves.
kernels::CodeRange codes_beside_bias(const QuantizedValue& x);

}  // namespace steelyard::qat
