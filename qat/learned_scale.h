// Scales and zero points that learn with the weights: LSQ (Esser et al., arXiv:1902.08153), LSQ+
// (Bhalgat et al., arXiv:2004.09576) and the clipping of PACT (Choi et al., arXiv:1805.06085).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "framework/autograd.h"
#include "observers/qscheme.h"

namespace steelyard::qat {

// The quantizer of one recorded use, as it was in the forward pass.
struct LearnedUse {
  observers::QScheme scheme;
  Tensor scale;                // f32 [channels]: of the first dimension where there are several
  Tensor zero_point;           // i32 [channels]
  Tensor initial;              // f32 [channels]: s0
  std::int64_t per_scale = 1;  // elements that share a scale, the batch not counted
  bool only_clipping = false;  // PACT: only clipped values move the scale
};

// Makes `output`, the quantized form of `input`, hand gradients to the latents of its quantizer:
// d latent = ds * min(1, s / s0) with ds, dz of NUMERICS (of clipped values alone for PACT), from
// the real f32 values before quantization. `values` is called in backward. The input's gradient is
// the output's where the packed mask has a one; all of it without a mask. zero_point is undefined
// where it does not learn.
Variable record_learned(Variable output, const Variable& input, Tensor mask,
                        std::function<Tensor()> values, LearnedUse use, const Variable& scale,
                        const Variable& zero_point);

// Whether a parameter is a latent: it has a learning rate of its own and never decays.
bool is_quantizer_parameter(std::string_view name);

inline constexpr const char* kLearnedScale = "learned_scale";
inline constexpr const char* kLearnedZeroPoint = "learned_zero_point";

}  // namespace steelyard::qat
