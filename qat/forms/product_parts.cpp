#include "steelyard/qat/forms/product_parts.h"

#include <algorithm>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::qat {
namespace {

// The scales of x for rows of codes of which `rows_of_input` come from each row of x, and those of
// weights from output channel `first` on.
kernels::GroupedScales scales_of_inputs(const QuantizedValue& x, std::int64_t rows,
                                        std::int64_t rows_of_input) {
  const bool one = x.qparams.scale.size() == 1;
  const std::int64_t shared = rows_of_input * std::max<std::int64_t>(1, x.block[0]);
  const std::int64_t of_row = one ? 0 : x.qparams.scale.size() / ((rows + shared - 1) / shared);
  return {x.qparams.scale.data<float>(), x.qparams.zero_point.data<std::int32_t>(), of_row,
          of_row > 1 ? 1 : 0, one ? 1 : shared};
}
kernels::GroupedScales scales_of_weights(const WeightCodes& weight, std::int64_t first) {
  const Tensor& scale = weight.qparams.scale;
  const std::int64_t of_row = scale.size() == 1 ? 0 : scale.size() / weight.codes.dim(0);
  return {scale.data<float>() + first * of_row,
          weight.qparams.zero_point.defined()
              ? weight.qparams.zero_point.data<std::int32_t>() + first * of_row
              : nullptr,
          of_row, of_row > 1 ? 1 : 0, 1};
}

}  // namespace

void apply_weight_mask(const Tensor& mask, const Tensor& grad) {
  if (!mask.defined()) return;
  run(grad.device(), kernels::ApplyMask<float>{.n = grad.size(),
                                               .mask = mask.data<std::uint8_t>(),
                                               .grad_y = grad.data<float>(),
                                               .grad_x = grad.data<float>()});
}

template <typename Code>
void multiply_groups(const Code* codes, const QuantizedValue& x, std::int64_t rows_of_input,
                     const WeightCodes& weight, const Tensor& bias, ChannelGroup of,
                     const Tensor& y) {
  if (y.size() == 0) return;
  const std::int64_t channels = weight.codes.dim(0), rows = y.size() / channels;
  const std::int64_t columns = channels / of.groups, first = of.group * columns;
  const std::int64_t terms = weight.codes.size() / channels;
  const kernels::GroupedScales of_x = scales_of_inputs(x, rows, rows_of_input);
  const kernels::GroupedScales of_w = scales_of_weights(weight, first);
  const std::int64_t scales = std::max({std::int64_t{1}, of_x.row_step, of_w.row_step});
  run(y.device(),
      kernels::GroupedProduct<Code>{
          .rows = rows,
          .columns = columns,
          .terms = terms,
          .group_size = terms / scales,
          .stride = channels,
          .x = codes,
          .of_x = of_x,
          .w = weight.codes.data<std::int8_t>() + first * terms,
          .of_w = of_w,
          .bias = bias.defined() ? bias.data<float>() + first : nullptr,
          .y = y.data<float>() + first,
          .largest = kernels::largest_product(x.range, weight.range, of_w.zero_point == nullptr)});
}

template void multiply_groups(const std::int8_t*, const QuantizedValue&, std::int64_t,
                              const WeightCodes&, const Tensor&, ChannelGroup, const Tensor&);
template void multiply_groups(const std::uint8_t*, const QuantizedValue&, std::int64_t,
                              const WeightCodes&, const Tensor&, ChannelGroup, const Tensor&);
template void multiply_groups(const std::int32_t*, const QuantizedValue&, std::int64_t,
                              const WeightCodes&, const Tensor&, ChannelGroup, const Tensor&);

}  // namespace steelyard::qat
