#include "steelyard/qat/quantizers/quantized_value.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/qat/quantizers/plan_run.h"

namespace steelyard::qat {

std::shared_ptr<const QuantizedValue> quantized(const Variable& x) {
  const auto companion = x.companion<QuantizedCompanion>();
  return companion ? std::shared_ptr<const QuantizedValue>(companion, &companion->value) : nullptr;
}

kernels::QuantDescriptor descriptor_of(const QuantizedValue& value,
                                       kernels::QuantOperation operation) {
  kernels::QuantDescriptor descriptor;
  descriptor.spec.operation = operation;
  descriptor.spec.code_type =
      value.codes.dtype() == DType::kI8 ? kernels::CodeType::kS8 : kernels::CodeType::kU8;
  descriptor.spec.range = value.range;
  const std::int64_t size = value.codes.size(), sets = value.qparams.scale.size();
  if (value.block[0] > 0) {
    const std::int64_t columns = value.codes.shape().back();
    descriptor.granularity = kernels::Granularity::kBlock;
    descriptor.options = {
        .block_rows = value.block[0],
        .block_columns = std::min(value.block[1], std::max<std::int64_t>(columns, 1))};
    descriptor.shape = {columns == 0 ? 0 : size / columns, columns};
  } else {
    descriptor.granularity = kernels::Granularity::kToken;
    descriptor.shape = {sets, sets == 0 ? 0 : size / sets};
  }
  return descriptor;
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
  run_plan(descriptor_of(value, kernels::QuantOperation::kDequantize), x.device(),
           {.y = array_of<float>(x),
            .codes = array_of_codes(value.codes),
            .scale = array_of<float>(value.qparams.scale),
            .zero_point = array_of<std::int32_t>(value.qparams.zero_point)});
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
