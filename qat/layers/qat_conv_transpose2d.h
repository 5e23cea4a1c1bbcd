// ConvTranspose2d with quantized weights and output.
#pragma once

#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

class QatConvTranspose2d : public QuantizedLayer {
 public:
  // weight [C, O/groups, KH, KW], as the float layer has it; bias [O] or undefined.
  QatConvTranspose2d(const ConvTranspose2dOptions& options, const Tensor& weight,
                     const Tensor& bias, const QConfig& config, kernels::Activation activation);

  std::string type_name() const override { return "QatConvTranspose2d"; }
  std::string description() const override;

 private:
  ConvTranspose2dOptions options_;
};

QuantizedForm conv_transpose2d_form();

}  // namespace steelyard::qat
