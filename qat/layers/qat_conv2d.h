// Conv2d with quantized weights and output.
#pragma once

#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

class QatConv2d : public QuantizedLayer {
 public:
  // Takes over the float layer's weight and bias (the tensors are shared).
  QatConv2d(const Conv2d& layer, const QConfig& config,
            kernels::Activation activation = kernels::Activation::kNone);
  // With other weight and bias tensors: those of a folded batch norm.
  QatConv2d(const Conv2dOptions& options, const Tensor& weight, const Tensor& bias,
            const QConfig& config, kernels::Activation activation);

  std::string type_name() const override { return "QatConv2d"; }
  std::string description() const override;

 private:
  Conv2dOptions options_;
};

QuantizedForm conv2d_form();

}  // namespace steelyard::qat
