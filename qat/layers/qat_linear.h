// Linear with quantized weights and output.
#pragma once

#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

class QatLinear : public QuantizedLayer {
 public:
  // Takes over the float layer's weight and bias (the tensors are shared).
  QatLinear(const Linear& layer, const QConfig& config,
            kernels::Activation activation = kernels::Activation::kNone);
  // With other weight and bias tensors: those of a folded batch norm.
  QatLinear(const LinearOptions& options, const Tensor& weight, const Tensor& bias,
            const QConfig& config, kernels::Activation activation);

  std::string type_name() const override { return "QatLinear"; }
  std::string description() const override;

 private:
  LinearOptions options_;
};

QuantizedForm linear_form();

}  // namespace steelyard::qat
