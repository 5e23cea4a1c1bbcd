// Residual sum whose output has a quantizer of its own.
#pragma once

#include "steelyard/kernels/integer.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/fake_quantize.h"

namespace steelyard::qat {

// y = quantize(activation(main(x) + shortcut(x))). Two quantized branches add as integers
// (NUMERICS: requantization of a sum); a float branch makes the sum a float one.
class QatResidual : public Module {
 public:
  // The names of the slots are those of Residual: main "", shortcut "downsample".
  QatResidual(std::shared_ptr<Module> main, std::shared_ptr<Module> shortcut,
              kernels::Activation activation, const QuantizerConfig& output);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatResidual"; }

 private:
  Slot& main_;
  Slot& shortcut_;
  kernels::Activation activation_;
  std::shared_ptr<FakeQuantize> output_;
};

}  // namespace steelyard::qat
