// Conv1d with quantized weights and output.
#pragma once

#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

// A convolution of images of one row: codes [N, L, C] are read as [N, 1, L, C], and the weight
// [O, C/groups, K] as [O, C/groups, 1, K].
class QatConv1d : public QuantizedLayer {
 public:
  QatConv1d(const Conv1dOptions& options, const Tensor& weight, const Tensor& bias,
            const QConfig& config, kernels::Activation activation = kernels::Activation::kNone);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatConv1d"; }
  std::string description() const override;

 private:
  Conv1dOptions options_;
};

QuantizedForm conv1d_form();

}  // namespace steelyard::qat
