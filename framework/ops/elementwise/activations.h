// Activations other than ReLU and clamps; each keeps its input for backward.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export
#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/activation/activation.h"

namespace steelyard {

inline constexpr OpNames<kernels::ActivationFunction> kActivationNames[] = {
    {kernels::ActivationFunction::kSigmoid, "sigmoid", "Sigmoid"},
    {kernels::ActivationFunction::kGelu, "gelu", "GELU"},
    {kernels::ActivationFunction::kTanhGelu, "tanh_gelu", "TanhGELU"},
    {kernels::ActivationFunction::kSilu, "silu", "SiLU"},
    {kernels::ActivationFunction::kHardswish, "hardswish", "Hardswish"},
    {kernels::ActivationFunction::kHardSigmoid, "hard_sigmoid", "HardSigmoid"},
    {kernels::ActivationFunction::kAffine, "affine", "Affine"},
    {kernels::ActivationFunction::kLeakyRelu, "leaky_relu", "LeakyReLU"},
    {kernels::ActivationFunction::kTanh, "tanh", "Tanh"},
};
static_assert(has_every_value(kActivationNames, kernels::ActivationFunction::kTanh));

// 1 / (1 + exp(-x)).
Variable sigmoid(const Variable& x);

// x * Phi(x), the exact form (Hendrycks and Gimpel, arXiv:1606.08415).
Variable gelu(const Variable& x);

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the same paper's approximation.
Variable tanh_gelu(const Variable& x);

// x * sigmoid(x) (Elfwing et al., arXiv:1702.03118).
Variable silu(const Variable& x);

// x * min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244).
Variable hardswish(const Variable& x);

// min(max(slope * x + offset, 0), 1).
Variable hard_sigmoid(const Variable& x, double slope, double offset);

// x where x > 0, else slope * x. Source: Maas et al., "Rectifier Nonlinearities Improve Neural
// Network Acoustic Models", 2013.
Variable leaky_relu(const Variable& x, double slope = 0.01);

// slope * x + offset.
Variable affine(const Variable& x, double slope, double offset);

// Any of these, with the line of those that have one.
Variable activate(kernels::ActivationFunction activation, const Variable& x,
                  const kernels::Ramp& ramp = {});

}  // namespace steelyard
