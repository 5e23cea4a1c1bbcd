// Average pooling whose output has a quantizer of its own, and pools of sequences.
#pragma once

#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

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

// AvgPool2d without padding in profiles of fixed point: codes of its input's grid, whose quantizer
// it shares.
class QatFixedAvgPool2d : public Module {
 public:
  explicit QatFixedAvgPool2d(const Pool2dGeometry& geometry) : geometry_(geometry) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatFixedAvgPool2d"; }

 private:
  Pool2dGeometry geometry_;
};

class QatGlobalAvgPool : public Module {
 public:
  explicit QatGlobalAvgPool(const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatGlobalAvgPool"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

// A pool of images on sequences [N, L, C], as images of one row.
class QatPool1d : public Module {
 public:
  QatPool1d(std::string type_name, std::shared_ptr<Module> pool);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return type_name_; }

 private:
  std::string type_name_;
  std::shared_ptr<Module> pool_;
};

QuantizedForm max_pool1d_form();
QuantizedForm avg_pool1d_form();
QuantizedForm avg_pool2d_form();
QuantizedForm fixed_avg_pool2d_form();
QuantizedForm global_avg_pool_form();

}  // namespace steelyard::qat
