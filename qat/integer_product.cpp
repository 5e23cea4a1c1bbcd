#include "qat/integer_product.h"

#include "framework/on_device.h"
#include "kernels/fake_quantize.h"

namespace steelyard::qat {

WeightCodes quantize_weight(FakeQuantize& quantizer, const Tensor& weight, bool recorded) {
  WeightCodes result;
  result.bits = quantizer.scheme().bits;
  result.codes = quantizer.quantize(weight, recorded ? &result.mask : nullptr);
  result.scales = quantizer.scale().clone();
  return result;
}

Tensor dequantize_weight(const Tensor& codes, const Tensor& scales) {
  Tensor weight = Tensor::empty(codes.shape(), DType::kF32, codes.device());
  if (weight.size() == 0) return weight;
  const kernels::ChannelLayout layout{1, scales.size(), codes.size() / scales.size()};
  on_device(weight.device(), [&](auto&... queue) {
    kernels::dequantize(queue..., layout, codes.data<std::int8_t>(), scales.data<float>(),
                        static_cast<const std::int32_t*>(nullptr), weight.data<float>());
  });
  return weight;
}

std::vector<float> deployed_scales(const Tensor& scales, std::int64_t outputs) {
  const Tensor host = scales.to(Device{});
  if (host.size() == 1)
    return std::vector<float>(static_cast<std::size_t>(outputs), *host.data<float>());
  return {host.span<float>().begin(), host.span<float>().end()};
}

Variable make_weight(WeightCodes codes) {
  auto companion = std::make_shared<const WeightCompanion>(std::move(codes));
  return Variable::deferred(
      companion->codes.codes.shape(), DType::kF32,
      [companion] { return dequantize_weight(companion->codes.codes, companion->codes.scales); },
      companion);
}

Attributes activation_attribute(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kRelu:
      return {{"activation", "relu"}};
    case kernels::Activation::kRelu6:
      return {{"activation", "relu6"}};
    case kernels::Activation::kNone:
      break;
  }
  return {};
}

IntegerProductFunction::IntegerProductFunction(std::shared_ptr<const Product> product,
                                               const QuantizedValue& x, const WeightCodes& weight,
                                               Tensor bias_codes, kernels::Activation activation,
                                               Tensor output_mask)
    : product_(std::move(product)),
      x_(x),
      weight_scales_(weight.scales),
      weight_bits_(weight.bits),
      bias_codes_(std::move(bias_codes)),
      activation_(activation) {
  save(x.codes);
  save(weight.codes);
  save(weight.mask);
  save(std::move(output_mask));
}

Attributes IntegerProductFunction::attributes() const {
  Attributes all = product_->attributes();
  for (auto& attribute : activation_attribute(activation_)) all.push_back(std::move(attribute));
  return all;
}

std::vector<Tensor> IntegerProductFunction::backward(const Tensor& grad_output) const {
  const bool has_bias = bias_codes_.defined();
  const Tensor& output_mask = saved()[3];
  const Tensor grad =
      output_mask.defined() ? masked_gradient(grad_output, output_mask) : grad_output;
  std::vector<Tensor> grads(has_bias ? 3 : 2);
  if (needs_grad(0)) {
    grads[0] = Tensor::empty(inputs()[0]->shape, DType::kF32, grad.device());
    product_->grad_input(grad, dequantize_weight(weight_codes(), weight_scales_), grads[0]);
  }
  const bool bias_gradient = has_bias && needs_grad(2);
  if (needs_grad(1) || bias_gradient) {
    Tensor weight_gradient = Tensor::empty(inputs()[1]->shape, DType::kF32, grad.device());
    if (bias_gradient) grads[2] = Tensor::empty(inputs()[2]->shape, DType::kF32, grad.device());
    product_->grad_weight(dequantized(x_), grad, weight_gradient, has_bias ? grads[2] : Tensor());
    if (saved()[2].defined()) {
      on_device(grad.device(), [&](auto&... queue) {
        kernels::apply_mask(queue..., weight_gradient.size(), saved()[2].data<std::uint8_t>(),
                            weight_gradient.data<float>(), weight_gradient.data<float>());
      });
    }
    if (needs_grad(1)) grads[1] = weight_gradient;
  }
  return grads;
}

}  // namespace steelyard::qat
