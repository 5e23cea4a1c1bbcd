#include "steelyard/qat/quantizers/dynamic_quantize.h"

#include "steelyard/kernels/code_type.h"
#include "steelyard/qat/quantizers/plan_run.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {

Variable quantize_dynamically(const Variable& x, const observers::QScheme& scheme,
                              std::int64_t row_size, const Tensor& non_finite) {
  const Tensor& values = x.value();
  const Device device = values.device();
  const std::int64_t rows = row_size == 0 ? 0 : values.size() / row_size;
  const std::int64_t sets = observers::scale_count(scheme, rows, row_size);
  QuantizedValue value{.codes = Tensor::empty(values.shape(), scheme.code_dtype(), device),
                       .qparams = {Tensor::empty({sets}, DType::kF32, device),
                                   Tensor::empty({sets}, DType::kI32, device)},
                       .range = scheme.code_range(),
                       .dynamic = true,
                       .block = scheme.block};
  const bool recorded = should_record({x});
  const Tensor mask = recorded ? empty_mask(values.size(), device) : Tensor();
  kernels::QuantDescriptor descriptor = descriptor_of(value, kernels::QuantOperation::kQuantize);
  descriptor.spec.statistics = kernels::Statistics::kDynamic;
  descriptor.spec.symmetric = scheme.symmetric;
  run_plan(descriptor, device,
           {.x = array_of<float>(values),
            .codes = array_of_codes(value.codes),
            .mask = array_of<std::uint8_t>(mask),
            .scale = array_of<float>(value.qparams.scale),
            .zero_point = array_of<std::int32_t>(value.qparams.zero_point),
            .non_finite_count = {data_or_null<std::int64_t>(non_finite), 1}});
  Variable y = make_variable(std::move(value));
  return recorded ? straight_through(std::move(y), mask, x, "dynamic_quantize") : y;
}

}  // namespace steelyard::qat
