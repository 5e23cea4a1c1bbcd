// The recorded product of a quantized layer, with what backward and an export need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/qat/forms/product.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// The scales on the CPU, one per output channel at least; waits for a GPU.
std::vector<float> deployed_scales(const Tensor& scales, std::int64_t outputs);

// acc i32 of the product's output shape = exact sums of (x - zero point) * (w - zero point).
void multiply_codes(const Product& product, const QuantizedValue& x, const WeightCodes& weight,
                    const Tensor& acc);

// The backward pass of the integer product: codes and masks were saved, and floats are computed
// from them again; codes of a parameter, which stays in memory anyway, may be computed from it.
class IntegerProductFunction : public Function {
 public:
  // The parameter from which backward computes the weights' codes again, and their range; undefined
  // where the codes are kept.
  struct QuantizedParameter {
    Tensor values;
    kernels::CodeRange range;
  };

  // output_mask undefined where the output is float. The third input is the bias, if it has one.
  IntegerProductFunction(std::shared_ptr<const Product> product, const QuantizedValue& x,
                         const WeightCodes& weight, const QuantizedParameter& parameter,
                         bool has_bias, kernels::Activation activation, Tensor output_mask);

  std::string name() const override { return product_->name(); }
  std::vector<Tensor> backward(const Tensor& grad_output) const override;
  bool takes_bf16_gradients() const override;

  const Product& product() const { return *product_; }
  // Fused after the product.
  kernels::Activation activation() const { return activation_; }
  const Shape& weight_shape() const { return saved()[1].shape(); }
  // The codes of the forward pass, while the parameter is unchanged.
  Tensor weight_codes() const;
  const QParamTensors& weight_qparams() const { return weight_qparams_; }
  int weight_bits() const { return weight_bits_; }
  // Undefined without a bias, and where weights have a scale for each group: it is f32 there.
  const Tensor& bias_codes() const { return bias_codes_; }

 private:
  bool reads_bf16_gradients() const;

  std::shared_ptr<const Product> product_;
  QuantizedValue x_;  // shares the saved codes
  QParamTensors weight_qparams_;
  kernels::CodeRange weight_range_;  // of a parameter's codes
  int weight_bits_;
  Tensor bias_codes_;
  bool has_bias_;
  kernels::Activation activation_;
};

}  // namespace steelyard::qat
