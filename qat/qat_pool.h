// Average pooling whose output has a quantizer of its own.
#pragma once

#include "steelyard/framework/ops/pool.h"
#include "steelyard/qat/activation_quantizer.h"
#include "steelyard/qat/quantized_form.h"

namespace steelyard::qat {

// AvgPool2d (padding counts in the divisor) on codes; a float input is averaged in float and then
// quantized.
class QatAvgPool2d : public Module {
 public:
  QatAvgPool2d(const Pool2dGeometry& geometry, const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatAvgPool2d"; }

 private:
  Pool2dGeometry geometry_;
  std::shared_ptr<ActivationQuantizer> output_;
};

class QatGlobalAvgPool : public Module {
 public:
  explicit QatGlobalAvgPool(const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatGlobalAvgPool"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm avg_pool2d_form();
QuantizedForm global_avg_pool_form();

}  // namespace steelyard::qat
