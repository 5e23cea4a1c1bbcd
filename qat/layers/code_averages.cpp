// Averages of windows of codes and of whole images.
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/qat/forms/wide_codes.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/quantizers/code_function.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// Sums of `count` codes of x fit int32.
void require_sums_fit(const char* name, const QuantizedValue& x, std::int64_t count) {
  const std::int64_t most = INT32_MAX / (x.range.qmax - x.range.qmin);
  if (count <= most) return;
  throw std::invalid_argument(std::string("[") + name + "] expected windows of at most " +
                              std::to_string(most) + " codes, so that their sum fits int32, got " +
                              std::to_string(count));
}

struct Averaging {
  const char* name;  // of the recorded operation
  kernels::Average::Kind kind;
  Pool2dGeometry geometry;
  kernels::Conv2dShape shape;  // of the windows
  Shape output_shape;
};

Tensor window_sums(const QuantizedValue& x, const Averaging& of) {
  require_sums_fit(of.name, x, of.shape.kernel_h * of.shape.kernel_w);
  const Tensor sums = Tensor::empty(of.output_shape, DType::kI32, x.codes.device());
  visit_all_codes(x.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(sums.device(),
        kernels::IntegerWindowSums<Code>{.shape = of.shape,
                                         .x = x.codes.data<Code>(),
                                         .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                         .sums = sums.data<std::int32_t>()});
  });
  return sums;
}

// The codes of averages, and their mask unless it is undefined.
void write_averages(const QuantizedValue& x, const Tensor& sums, const kernels::Average& average,
                    const QuantizedValue& y, const Tensor& mask) {
  visit_codes(y.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(sums.device(),
        kernels::RequantizeAverage<Code>{.n = sums.size(),
                                         .average = average,
                                         .sums = sums.data<std::int32_t>(),
                                         .in_scale = x.qparams.scale.data<float>(),
                                         .scale = y.qparams.scale.data<float>(),
                                         .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                         .range = y.range,
                                         .codes = y.codes.data<Code>(),
                                         .mask = data_or_null<std::uint8_t>(mask)});
  });
}

// The same in fixed point.
void write_fixed_averages(const QuantizedValue& x, const Tensor& sums,
                          const kernels::Average& average, const QuantizedValue& y,
                          const Tensor& mask) {
  run(sums.device(),
      kernels::FixedRequantizeAverage{.n = sums.size(),
                                      .rounding = y.rounding,
                                      .average = average,
                                      .sums = sums.data<std::int32_t>(),
                                      .in_scale = x.qparams.scale.data<float>(),
                                      .scale = y.qparams.scale.data<float>(),
                                      .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                      .range = y.range,
                                      .codes = y.codes.data<std::int8_t>(),
                                      .mask = data_or_null<std::uint8_t>(mask)});
}

// The gradient of averages whose windows have the shape.
CodeFunction::Gradient average_gradient(const kernels::Conv2dShape& shape) {
  return [shape](const Tensor& grad_output, const Shape& input, const std::vector<Tensor>& saved) {
    const Tensor inside = masked_gradient(grad_output, saved[0]);
    Tensor grad = Tensor::empty(input, DType::kF32, grad_output.device());
    run(grad.device(), kernels::AveragePoolBackward<float>{.shape = shape,
                                                           .count_include_pad = true,
                                                           .grad_y = inside.data<float>(),
                                                           .grad_x = grad.data<float>()});
    return grad;
  };
}

Variable average_codes(const Variable& x, const Averaging& of, ActivationQuantizer& output,
                       ForwardContext& context) {
  const auto& [name, kind, geometry, shape, output_shape] = of;
  const auto codes = quantized(x);
  const Device device = codes->codes.device();
  const Tensor sums = window_sums(*codes, of);
  const kernels::Average average{kind, shape.kernel_h * shape.kernel_w};
  const auto values = [sums, scale = codes->qparams.scale, average] {
    Tensor real = Tensor::empty(sums.shape(), DType::kF32, sums.device());
    run(sums.device(), kernels::DequantizeAverage{.n = sums.size(),
                                                  .count = average.count,
                                                  .sums = sums.data<std::int32_t>(),
                                                  .in_scale = scale.data<float>(),
                                                  .out = real.data<float>()});
    return real;
  };
  const bool recorded = should_record({x});
  Tensor mask;
  QuantizedValue y;
  if (codes->wide() || output.scheme().wide()) {
    y = round_reals(values(), kernels::Activation::kNone, values, output,
                    recorded ? &mask : nullptr, context);
  } else {
    y = output.empty_output(output_shape, values, context);
    if (recorded) mask = empty_mask(sums.size(), device);
    if (kernels::is_fixed_point(y.rounding)) {
      write_fixed_averages(*codes, sums, average, y, mask);
    } else {
      write_averages(*codes, sums, average, y, mask);
    }
  }
  Variable result = make_variable(std::move(y));
  if (!recorded) return result;
  result =
      record(std::move(result),
             std::make_shared<DescribedCodeFunction<AveragePool2d>>(
                 name, AveragePool2d{geometry}, average_gradient(shape), std::vector<Tensor>{mask}),
             {x});
  return output.learn_output(result, {values, {sums}}, context);
}

Averaging window_averaging(const Variable& x, const Pool2dGeometry& geometry) {
  const kernels::Conv2dShape shape = pool2d_shape("avg_pool2d", x.shape(), geometry);
  return {.name = "quantized_avg_pool2d",
          .kind = kernels::Average::Kind::kWindow,
          .geometry = geometry,
          .shape = shape,
          .output_shape = {shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}};
}

}  // namespace

Variable avg_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry,
                          ActivationQuantizer& output, ForwardContext& context) {
  return average_codes(x, window_averaging(x, geometry), output, context);
}

Variable fixed_avg_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry) {
  const auto codes = quantized(x);
  const Averaging of = window_averaging(x, geometry);
  const Tensor sums = window_sums(*codes, of);
  const QuantizedValue y = with_codes(
      *codes, Tensor::empty(of.output_shape, codes->codes.dtype(), codes->codes.device()));
  const bool recorded = should_record({x});
  const Tensor mask = recorded ? empty_mask(sums.size(), sums.device()) : Tensor();
  write_fixed_averages(*codes, sums, {of.kind, of.shape.kernel_h * of.shape.kernel_w}, y, mask);
  Variable result = make_variable(y);
  if (!recorded) return result;
  return record(
      std::move(result),
      std::make_shared<DescribedCodeFunction<AveragePool2d>>(
          of.name, AveragePool2d{geometry}, average_gradient(of.shape), std::vector<Tensor>{mask}),
      {x});
}

Variable global_avg_pool_codes(const Variable& x, ActivationQuantizer& output,
                               ForwardContext& context) {
  const Pool2dGeometry whole{.kernel = {x.dim(1), x.dim(2)}, .stride = {1, 1}, .padding = {0, 0}};
  const kernels::Conv2dShape shape = pool2d_shape("global_avg_pool", x.shape(), whole);
  return average_codes(x,
                       {.name = "quantized_global_avg_pool",
                        .kind = kernels::Average::Kind::kGlobal,
                        .geometry = whole,
                        .shape = shape,
                        .output_shape = {shape.batch, shape.out_channels}},
                       output, context);
}

}  // namespace steelyard::qat
