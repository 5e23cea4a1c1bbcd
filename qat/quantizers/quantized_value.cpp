#include "steelyard/qat/quantizers/quantized_value.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/block_scales/block_scales.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::qat {

std::shared_ptr<const QuantizedValue> quantized(const Variable& x) {
  const auto companion = x.companion<QuantizedCompanion>();
  return companion ? std::shared_ptr<const QuantizedValue>(companion, &companion->value) : nullptr;
}

kernels::Blocks blocks_of(const std::array<std::int64_t, 2>& block, const Shape& shape) {
  const std::int64_t columns = shape.back();
  const std::int64_t width = std::min(block[1], columns);
  return {.columns = columns,
          .rows = columns == 0 ? 0 : shape_size(shape) / columns,
          .block_rows = block[0],
          .block_columns = width,
          .blocks_of_row = width == 0 ? 0 : columns / width};
}

Tensor dequantized(const QuantizedValue& value) {
  ops::require_defined("dequantized", "codes", value.codes);
  ops::require_defined("dequantized", "a scale", value.qparams.scale);
  Tensor x = Tensor::empty(value.codes.shape(), DType::kF32, value.codes.device());
  if (x.size() == 0) return x;
  if (value.wide()) {
    run(x.device(),
        kernels::DequantizeWide{.n = x.size(),
                                .codes = value.codes.data<std::int32_t>(),
                                .scale = value.qparams.scale.data<float>(),
                                .zero_point = value.qparams.zero_point.data<std::int32_t>(),
                                .y = x.data<float>()});
    return x;
  }
  const std::int64_t sets = value.qparams.scale.size();
  if (value.block[0] > 0) {
    visit_codes(value.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run(x.device(), kernels::DequantizeBlocks<Code>{
                          .n = x.size(),
                          .blocks = blocks_of(value.block, x.shape()),
                          .codes = value.codes.data<Code>(),
                          .scale = value.qparams.scale.data<float>(),
                          .zero_point = value.qparams.zero_point.data<std::int32_t>(),
                          .y = x.data<float>()});
    });
    return x;
  }
  visit_codes(value.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(x.device(), kernels::Dequantize<float, Code>{
                        .layout = {1, sets, x.size() / sets},
                        .codes = value.codes.data<Code>(),
                        .scale = value.qparams.scale.data<float>(),
                        .zero_point = value.qparams.zero_point.data<std::int32_t>(),
                        .y = x.data<float>()});
  });
  return x;
}

Tensor dequantized(const WeightCodes& weight) {
  ops::require_defined("dequantized", "codes", weight.codes);
  ops::require_defined("dequantized", "a scale", weight.qparams.scale);
  Tensor values = Tensor::empty(weight.codes.shape(), DType::kF32, weight.codes.device());
  if (values.size() == 0) return values;
  const kernels::ChannelLayout layout{1, weight.qparams.scale.size(),
                                      values.size() / weight.qparams.scale.size()};
  const std::int32_t* zero_points = weight.qparams.zero_point.defined()
                                        ? weight.qparams.zero_point.data<std::int32_t>()
                                        : nullptr;
  run(values.device(),
      kernels::Dequantize<float, std::int8_t>{.layout = layout,
                                              .codes = weight.codes.data<std::int8_t>(),
                                              .scale = weight.qparams.scale.data<float>(),
                                              .zero_point = zero_points,
                                              .y = values.data<float>()});
  return values;
}

Variable make_variable(QuantizedValue value) {
  auto companion = std::make_shared<const QuantizedCompanion>(std::move(value));
  const Shape shape = companion->value.codes.shape();
  return Variable::deferred(
      shape, DType::kF32, [companion] { return dequantized(companion->value); }, companion);
}

Variable make_weight(WeightCodes codes) {
  auto companion = std::make_shared<const WeightCompanion>(std::move(codes));
  return Variable::deferred(
      companion->codes.codes.shape(), DType::kF32,
      [companion] { return dequantized(companion->codes); }, companion);
}

}  // namespace steelyard::qat
