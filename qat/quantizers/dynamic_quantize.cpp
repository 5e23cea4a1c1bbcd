#include "steelyard/qat/quantizers/dynamic_quantize.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/block_scales/block_scales.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/observers/observer.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// The values of each block as one row. Zeros fill up short blocks at the end; they extend no range,
// because every range holds 0.
Tensor in_blocks(const Tensor& values, const kernels::Blocks& blocks) {
  const std::int64_t size = blocks.block_rows * blocks.block_columns;
  Tensor rows = Tensor::empty({blocks.count(), size}, DType::kF32, values.device());
  run(values.device(),
      kernels::ToBlocks{
          .n = rows.size(), .blocks = blocks, .x = values.data<float>(), .y = rows.data<float>()});
  return rows;
}

void write_codes(const Tensor& values, const kernels::ChannelLayout& layout,
                 const QuantizedValue& to, const Tensor& mask) {
  std::uint8_t* const bits = data_or_null<std::uint8_t>(mask);
  visit_codes(to.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    if (to.block[0] > 0) {
      return run(values.device(), kernels::QuantizeBlocks<Code>{
                                      .n = kernels::mask_bytes(values.size()),
                                      .size = values.size(),
                                      .blocks = blocks_of(to.block, values.shape()),
                                      .range = to.range,
                                      .x = values.data<float>(),
                                      .scale = to.qparams.scale.data<float>(),
                                      .zero_point = to.qparams.zero_point.data<std::int32_t>(),
                                      .codes = to.codes.data<Code>(),
                                      .mask = bits});
    }
    run(values.device(),
        kernels::Quantize<float, Code>{.layout = layout,
                                       .range = to.range,
                                       .x = values.data<float>(),
                                       .scale = to.qparams.scale.data<float>(),
                                       .zero_point = to.qparams.zero_point.data<std::int32_t>(),
                                       .codes = to.codes.data<Code>(),
                                       .mask = bits});
  });
}

}  // namespace

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
  const Tensor measured =
      value.block[0] > 0 ? in_blocks(values, blocks_of(value.block, values.shape())) : values;
  const kernels::ChannelLayout layout{1, sets, sets == 0 ? 0 : measured.size() / sets};
  const observers::Extremes ends = observers::extremes_of(layout, measured, non_finite);
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
  write_codes(values, layout, value, mask);
  Variable y = make_variable(std::move(value));
  return recorded ? straight_through(std::move(y), mask, x, "dynamic_quantize") : y;
}

}  // namespace steelyard::qat
