#include "steelyard/qat/quantizers/quantize_reals.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::qat {

Tensor quantize_reals(const Tensor& real, kernels::Activation activation,
                      const FakeQuantize& output, const QParamTensors& qparams, Tensor* mask) {
  const Device device = real.device();
  Tensor codes = Tensor::empty(real.shape(), output.scheme().code_dtype(), device);
  if (mask != nullptr) *mask = empty_mask(real.size(), device);
  visit_all_codes(codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(device, kernels::QuantizeReals<Code>{
                    .n = kernels::mask_bytes(real.size()),
                    .size = real.size(),
                    .activation = activation,
                    .range = output.code_range(),
                    .x = real.data<float>(),
                    .scale = qparams.scale.data<float>(),
                    .zero_point = qparams.zero_point.data<std::int32_t>(),
                    .codes = codes.data<Code>(),
                    .mask = mask != nullptr ? mask->data<std::uint8_t>() : nullptr});
  });
  return codes;
}

}  // namespace steelyard::qat
