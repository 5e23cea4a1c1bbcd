#include "qat/quantized_value.h"

#include "kernels/fake_quantize.h"

namespace steelyard::qat {

std::shared_ptr<const QuantizedValue> quantized(const Variable& x) {
  const auto companion = x.companion<QuantizedCompanion>();
  return companion ? std::shared_ptr<const QuantizedValue>(companion, &companion->value) : nullptr;
}

Tensor dequantized(const QuantizedValue& value) {
  Tensor x = Tensor::empty(value.codes.shape());
  visit_codes(value.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::dequantize(kernels::ChannelLayout::per_tensor(x.size()), value.codes.data<Code>(),
                        &value.scale, &value.zero_point, x.data<float>());
  });
  return x;
}

Variable make_variable(QuantizedValue value) {
  auto companion = std::make_shared<const QuantizedCompanion>(std::move(value));
  const Shape shape = companion->value.codes.shape();
  return Variable::deferred(
      shape, DType::kF32, [companion] { return dequantized(companion->value); }, companion);
}

}  // namespace steelyard::qat
