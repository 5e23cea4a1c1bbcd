// From real values to codes of any width, an activation between them.
#pragma once

#include "steelyard/kernels/affine.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// Codes of `output`, of any width, of activation(real): f32 `real`. The packed mask, where not
// null, is of values inside the range and on the activation's linear part.
Tensor quantize_reals(const Tensor& real, kernels::Activation activation,
                      const FakeQuantize& output, const QParamTensors& qparams, Tensor* mask);

}  // namespace steelyard::qat
