// Scales and offsets that are learned with the weights: LSQ (Esser et al., arXiv:1902.08153), LSQ+
// (Bhalgat et al., arXiv:2004.09576) and the clipping of PACT (Choi et al., arXiv:1805.06085). An
// offset is the real value of the lowest code; the zero point is the code nearest to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/observers/qparam_tensors.h"
#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// The real values before quantization, which backward computes again where a scale is learned.
struct RealValues {
  std::function<Tensor()> compute;  // f32
  std::vector<Tensor> from;         // what it reads, kept for backward
};

// One use of a quantizer in a step, to be recorded.
struct QuantizedUse {
  Variable output;  // the quantized form of `input`
  Variable input;
  // Where the packed mask has a one, the input's gradient is the output's; all of it without.
  Tensor mask;
  RealValues values;
  QParamTensors qparams;       // as they were in the forward pass
  std::int64_t per_scale = 1;  // elements that share a scale, the batch not counted
};

// The latents of one quantizer, f32 [channels] each: tensors of the module that owns it, whose
// checkpoints hold them.
class LearnedScale {
 public:
  struct Latents {
    Variable scale;
    Variable offset;  // undefined where it does not learn
    Tensor initial;   // s0: the scale that learning began with
    Tensor floor;     // the least scale of weights that their bias allows
  };
  LearnedScale(Learning learning, Latents latents)
      : learning_(learning), latents_(std::move(latents)) {}

  const Latents& latents() const { return latents_; }
  const Tensor& scale() const { return latents_.scale.value(); }
  // Undefined where it does not learn.
  Tensor offset() const { return latents_.offset.defined() ? latents_.offset.value() : Tensor(); }
  // Whether a pass records gradients of the scale.
  bool trainable() const { return should_record({latents_.scale}); }

  // Latents begin where scale and zero point are.
  void begin(kernels::CodeRange range, const QParamTensors& from) const;
  // Writes the scale and zero point that the latents stand for, and copies where they are defined.
  // A latent that is not finite leaves them and is counted, so that the run stops.
  void follow(kernels::CodeRange range, const QParamTensors& to, const QParamTensors& copies,
              const Tensor& non_finite) const;
  // Throws std::invalid_argument where somebody has given a latent another shape.
  void require_size(std::int64_t count) const;
  // Makes the use's output hand gradients to the latents: those of
  // kernels/quantizer_state/formulas.h, latent_gradients(), from the scale's and zero point's (of
  // clipped values alone for PACT), summed over the real values.
  Variable record_use(QuantizedUse use, const observers::QScheme& scheme) const;

 private:
  Learning learning_;
  Latents latents_;
};

// Whether a parameter is a latent: it has a learning rate of its own and never decays.
bool is_latent(std::string_view name);

inline constexpr const char* kLearnedScale = "learned_scale";
inline constexpr const char* kLearnedOffset = "learned_offset";

}  // namespace steelyard::qat
