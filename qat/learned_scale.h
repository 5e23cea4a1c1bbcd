// Scales and offsets that learn with the weights: LSQ (Esser et al., arXiv:1902.08153), LSQ+
// (Bhalgat et al., arXiv:2004.09576) and the clipping of PACT (Choi et al., arXiv:1805.06085). An
// offset is the real value of the lowest code; the zero point is the code nearest to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "steelyard/framework/autograd.h"
#include "steelyard/observers/qscheme.h"

namespace steelyard::qat {

// The quantizer of one recorded use, as it was in the forward pass.
struct LearnedUse {
  observers::QScheme scheme;
  Tensor scale;                // f32 [channels]: of the first dimension where there are several
  Tensor zero_point;           // i32 [channels]
  Tensor initial;              // f32 [channels]: s0
  Tensor offset;               // f32 [channels], undefined where it does not learn
  std::int64_t per_scale = 1;  // elements that share a scale, the batch not counted
  bool only_clipping = false;  // PACT: only clipped values move the scale
};

// Makes `output`, the quantized form of `input`, hand gradients to the latents of its quantizer,
// those of kernels/quantizer_state/formulas.h, latent_gradients(), from the scale's and zero
// point's (of clipped values alone for PACT), summed over the real f32 values before quantization.
// `values` is called in backward. The input's gradient is the output's where the packed mask has a
// one; all of it without a mask. offset is undefined where it does not learn.
Variable record_learned(Variable output, const Variable& input, Tensor mask,
                        std::function<Tensor()> values, LearnedUse use, const Variable& scale,
                        const Variable& offset);

// Whether a parameter is a latent: it has a learning rate of its own and never decays.
bool is_quantizer_parameter(std::string_view name);

inline constexpr const char* kLearnedScale = "learned_scale";
inline constexpr const char* kLearnedOffset = "learned_offset";

}  // namespace steelyard::qat
