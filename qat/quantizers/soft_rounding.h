// Rounding to one of the two nearest codes as a function that can be learned. Source: Nagel et al.,
// "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv:2004.10568, section 3.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// The weights s * (clip(floor(w / s) + z + h(V), qmin, qmax) - z) with a variable V for each of
// them, and h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1), the rectified sigmoid: equations 22 and 23 of
// the paper, here with the zero point z of scales that have one. V begins where h(V) is w / s -
// floor(w / s), so that the weights begin as they are.
class SoftRounding {
 public:
  // weight f32 [outputs, ...]; `nearest` has its scales, each of as many consecutive weights, and
  // codes within `range`.
  SoftRounding(const Tensor& weight, const WeightCodes& nearest, kernels::CodeRange range);

  // V, f32, of the weight's shape, on its device.
  const Variable& variable() const { return variable_; }
  // The weights of V.
  Variable weight() const;
  // sum of 1 - |2 h(V) - 1|^beta: 0 where every h is 0 or 1 (equation 24).
  Variable regularizer(double beta) const;
  // The codes that each h is nearer to, and what they stand for: f32, on the CPU.
  Tensor codes() const;
  Tensor values(const Tensor& codes) const;

 private:
  Variable rounding() const;  // h(V)

  Tensor scale_, zero_point_;  // of each set of weights, on the CPU
  Tensor below_, above_;       // i8, on the CPU: the two codes
  Variable variable_;
  Variable base_, step_;  // of the code below, and from it to the one above
};

}  // namespace steelyard::qat
