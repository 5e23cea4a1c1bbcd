// Quantized forms of the layers that move values without making new ones: they work on the codes
// and share their input's quantizer. A float input is passed to the float operation.
#pragma once

#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/forms/quantized_form.h"

namespace steelyard::qat {

class QatMaxPool2d : public Module {
 public:
  explicit QatMaxPool2d(const Pool2dGeometry& geometry) : geometry_(geometry) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatMaxPool2d"; }

 private:
  Pool2dGeometry geometry_;
};

class QatFlatten : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatFlatten"; }
};

class QatActivation : public Module {
 public:
  explicit QatActivation(kernels::Activation activation) : activation_(activation) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatActivation"; }

 private:
  kernels::Activation activation_;
};

// Inverted dropout: in training the kept values grow through the scale, codes stay.
class QatDropout : public Module {
 public:
  explicit QatDropout(const DropoutOptions& options) : options_(options) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatDropout"; }

 private:
  DropoutOptions options_;
};

QuantizedForm max_pool2d_form();
QuantizedForm flatten_form();
QuantizedForm dropout_form();
QuantizedForm relu_form();
QuantizedForm relu6_form();

}  // namespace steelyard::qat
