// Sigmoid, SiLU, GELU, Hardswish, HardSigmoid, LeakyReLU and affine maps on codes, through a table
// of the 256 codes that an input can have; Tanh in profiles of fixed point.
#pragma once

#include <memory>

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// activation(x) quantized by `output`, with the line `ramp` of those that have one, of a value with
// codes of 8 bits or fewer (docs/numerics.md: activations by table).
Variable table_activation_codes(const Variable& x, kernels::ActivationFunction activation,
                                ActivationQuantizer& output, ForwardContext& context,
                                const kernels::Ramp& ramp = {});

// For a float input the activation is computed in float and then quantized.
class QatTableActivation : public Module {
 public:
  QatTableActivation(kernels::ActivationFunction activation, const QuantizerConfig& output,
                     const kernels::Ramp& ramp = {});
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override;

 private:
  kernels::ActivationFunction activation_;
  kernels::Ramp ramp_;
  std::shared_ptr<ActivationQuantizer> output_;
};

// A form for each of them.
QuantizedForms table_activation_forms();

}  // namespace steelyard::qat
