#include "steelyard/qat/dynamic_quantize.h"

#include "steelyard/framework/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/observers/observer.h"
#include "steelyard/qat/straight_through.h"

namespace steelyard::qat {

Variable quantize_dynamically(const Variable& x, const observers::QScheme& scheme,
                              const Tensor& non_finite) {
  const Tensor values = x.value();
  const Device device = values.device();
  const std::int64_t features = values.dim(-1);
  const std::int64_t rows = features == 0 ? 0 : values.size() / features;
  const std::int64_t sets = observers::scale_count(scheme, rows, features);
  const kernels::ChannelLayout layout{1, sets, sets == 0 ? 0 : values.size() / sets};
  QuantizedValue value{.codes = Tensor::empty(values.shape(), scheme.code_dtype(), device),
                       .qparams = {Tensor::empty({sets}, DType::kF32, device),
                                   Tensor::empty({sets}, DType::kI32, device)},
                       .range = scheme.code_range(),
                       .dynamic = true};
  const observers::Extremes ends = observers::extremes_of(layout, values, non_finite);
  run(device,
      kernels::QparamsOfRanges<float>{.n = sets,
                                      .range = value.range,
                                      .symmetric = scheme.symmetric,
                                      .lo = ends.lo.data<float>(),
                                      .hi = ends.hi.data<float>(),
                                      .scale = value.qparams.scale.data<float>(),
                                      .zero_point = value.qparams.zero_point.data<std::int32_t>(),
                                      .zero_range = nullptr});
  const bool recorded = should_record({x});
  const Tensor mask = recorded ? empty_mask(values.size(), device) : Tensor();
  visit_codes(value.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(device,
        kernels::Quantize<float, Code>{.layout = layout,
                                       .range = value.range,
                                       .x = values.data<float>(),
                                       .scale = value.qparams.scale.data<float>(),
                                       .zero_point = value.qparams.zero_point.data<std::int32_t>(),
                                       .codes = value.codes.data<Code>(),
                                       .mask = recorded ? mask.data<std::uint8_t>() : nullptr});
  });
  Variable y = make_variable(std::move(value));
  return recorded ? straight_through(std::move(y), mask, x, "dynamic_quantize") : y;
}

}  // namespace steelyard::qat
