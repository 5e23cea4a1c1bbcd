#include "steelyard/qat/forms/wide_codes.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/quantizers/quantize_reals.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// The high and the low bytes of codes and of their zero point, as codes of 8 bits each.
struct Bytes {
  QuantizedValue high, low;
};

Bytes bytes_of(const QuantizedValue& x) {
  const Device device = x.codes.device();
  const auto empty = [&] {
    return QuantizedValue{.codes = Tensor::empty(x.codes.shape(), DType::kU8, device),
                          .qparams = {x.qparams.scale, Tensor::empty({1}, DType::kI32, device)},
                          .range = {0, 255}};
  };
  Bytes bytes{empty(), empty()};
  constexpr std::int32_t kLowestOfSigned = -(1 << 15);
  const std::int32_t lowest = x.range.qmin < 0 ? kLowestOfSigned : 0;
  run(device, kernels::SplitCodes<std::uint8_t>{.n = x.codes.size(),
                                                .lowest = lowest,
                                                .codes = x.codes.data<std::int32_t>(),
                                                .high = bytes.high.codes.data<std::uint8_t>(),
                                                .low = bytes.low.codes.data<std::uint8_t>()});
  run(device,
      kernels::SplitCodes<std::int32_t>{.n = 1,
                                        .lowest = lowest,
                                        .codes = x.qparams.zero_point.data<std::int32_t>(),
                                        .high = bytes.high.qparams.zero_point.data<std::int32_t>(),
                                        .low = bytes.low.qparams.zero_point.data<std::int32_t>()});
  return bytes;
}

}  // namespace

QuantizedValue round_reals(const Tensor& real, kernels::Activation activation,
                           const std::function<Tensor()>& activated, ActivationQuantizer& output,
                           Tensor* mask, const ForwardContext& context) {
  const QParamTensors qparams = output.parameters(
      output.observes(context) ? output.observe(activated()) : QParamTensors(), context);
  return output.value_of(quantize_reals(real, activation, output, qparams, mask), qparams);
}

Tensor multiply_wide(const Product& product, const QuantizedValue& x, const WeightCodes& weight) {
  const Device device = x.codes.device();
  const Shape shape = product.output_shape(x.codes.shape(), weight.codes.shape());
  const Tensor high = Tensor::empty(shape, DType::kI32, device);
  const Tensor low = Tensor::empty(shape, DType::kI32, device);
  const Bytes bytes = bytes_of(x);
  multiply_codes(product, bytes.high, weight, high);
  multiply_codes(product, bytes.low, weight, low);
  Tensor real = Tensor::empty(shape, DType::kF32, device);
  const std::int64_t channels = weight.codes.dim(0);
  run(device, kernels::DequantizeWideSums{
                  .rows = channels == 0 ? 0 : real.size() / channels,
                  .columns = channels,
                  .high = high.data<std::int32_t>(),
                  .low = low.data<std::int32_t>(),
                  .bias = weight.bias.defined() ? weight.bias.data<std::int32_t>() : nullptr,
                  .product_scale = weight.product_scale.data<float>(),
                  .out = real.data<float>()});
  return real;
}

kernels::CodeRange codes_beside_bias(const QuantizedValue& x) {
  return x.wide() ? kernels::CodeRange{0, 1} : x.range;
}

}  // namespace steelyard::qat
