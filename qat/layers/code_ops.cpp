#include "steelyard/qat/layers/code_ops.h"

#include <functional>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/transpose/transpose.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/forms/wide_codes.h"
#include "steelyard/qat/layers/qat_moves.h"
#include "steelyard/qat/quantizers/code_function.h"
#include "steelyard/qat/quantizers/codes_of.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

std::uint8_t* bits_of(const Tensor& mask) { return data_or_null<std::uint8_t>(mask); }

// The sum of two quantized tensors of 8 bits as f32, as observers see it.
struct CodeSum {
  std::shared_ptr<const QuantizedValue> a, b;
  kernels::Activation activation;

  // f<A, B>() with the types of the codes of a and b.
  template <typename F>
  void visit(F&& f) const {
    visit_codes(a->codes.dtype(), [&](auto* tag_a) {
      visit_codes(b->codes.dtype(), [&](auto* tag_b) {
        using A = CodeOf<decltype(tag_a)>;
        using B = CodeOf<decltype(tag_b)>;
        f.template operator()<A, B>();
      });
    });
  }
  Tensor values() const {
    Tensor sum = Tensor::empty(a->codes.shape(), DType::kF32, a->codes.device());
    visit([&]<typename A, typename B>() {
      run(sum.device(), kernels::DequantizeAdd<A, B>{.n = sum.size(),
                                                     .activation = activation,
                                                     .a = codes_of<A>(*a),
                                                     .b = codes_of<B>(*b),
                                                     .out = sum.data<float>()});
    });
    return sum;
  }
  void write(const QuantizedValue& y, const Tensor& mask) const {
    if (kernels::is_fixed_point(y.rounding)) return write_fixed(y, mask);
    visit([&]<typename A, typename B>() {
      visit_codes(y.codes.dtype(), [&](auto* tag) {
        using Code = CodeOf<decltype(tag)>;
        run(y.codes.device(), kernels::RequantizeAdd<A, B, Code>{
                                  .n = y.codes.size(),
                                  .activation = activation,
                                  .a = codes_of<A>(*a),
                                  .b = codes_of<B>(*b),
                                  .scale = y.qparams.scale.data<float>(),
                                  .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                  .range = y.range,
                                  .codes = y.codes.data<Code>(),
                                  .mask = bits_of(mask)});
      });
    });
  }
  void write_fixed(const QuantizedValue& y, const Tensor& mask) const {
    run(y.codes.device(),
        kernels::FixedRequantizeAdd{.n = y.codes.size(),
                                    .rounding = y.rounding,
                                    .activation = activation,
                                    .a = codes_of<std::int8_t>(*a),
                                    .b = codes_of<std::int8_t>(*b),
                                    .scale = y.qparams.scale.data<float>(),
                                    .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                    .range = y.range,
                                    .codes = y.codes.data<std::int8_t>(),
                                    .mask = bits_of(mask)});
  }
};

// The codes of x, repeated to `shape`.
std::shared_ptr<const QuantizedValue> repeated(const Variable& x, const Shape& shape) {
  const auto value = quantized(x);
  if (x.shape() == shape) return value;
  ops::Part part{.shape = shape, .strides = std::vector<std::int64_t>(shape.size(), 0)};
  const std::vector<std::int64_t> strides = ops::row_major_strides(x.shape());
  const std::size_t added = shape.size() - x.shape().size();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (x.shape()[i] == shape[added + i]) part.strides[added + i] = strides[i];
  }
  return std::make_shared<QuantizedValue>(
      with_codes(*value, ops::gathered("quantized_add", value->codes, part)));
}

// The sum where a tensor is wide: activation(the sum of the real values).
Tensor real_sum(const QuantizedValue& a, const QuantizedValue& b, kernels::Activation activation) {
  const NoGradGuard no_grad;
  const Variable sum = add(Variable(dequantized(a)), Variable(dequantized(b)));
  return apply_activation(sum, activation).value();
}

}  // namespace

Variable max_pool2d_codes(const Variable& x, const Pool2dGeometry& geometry) {
  const auto codes = quantized(x);
  const kernels::Conv2dShape shape = max_pool2d_shape(x.shape(), geometry);
  const bool recorded = should_record({x});
  Tensor winners;
  const Device device = codes->codes.device();
  if (recorded) winners = Tensor::empty({shape.output_size() * 2}, DType::kU8, device);
  Tensor pooled = Tensor::empty({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels},
                                codes->codes.dtype(), device);
  visit_all_codes(pooled.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(device, kernels::MaxPool<Code>{.shape = shape,
                                       .x = codes->codes.data<Code>(),
                                       .y = pooled.data<Code>(),
                                       .argmax = static_cast<std::uint16_t*>(winners.raw())});
  });
  Variable y = make_variable(with_codes(*codes, pooled));
  if (!recorded) return y;
  const auto gradient = [shape](const Tensor& grad_output, const Shape& input,
                                const std::vector<Tensor>& saved) {
    Tensor grad = Tensor::empty(input, DType::kF32, grad_output.device());
    run(grad.device(),
        kernels::MaxPoolBackward<float>{.shape = shape,
                                        .grad_y = grad_output.data<float>(),
                                        .argmax = static_cast<const std::uint16_t*>(saved[0].raw()),
                                        .grad_x = grad.data<float>()});
    return grad;
  };
  return record(std::move(y),
                std::make_shared<DescribedCodeFunction<Pool2dGeometry>>(
                    "quantized_max_pool2d", geometry, gradient, std::vector<Tensor>{winners}),
                {x});
}

Variable flatten_codes(const Variable& x) {
  if (x.shape().size() == 2) return x;
  if (x.shape().size() == 3) {
    return flatten_codes(reshape_codes(x, {x.dim(0), 1, x.dim(1), x.dim(2)}));
  }
  if (x.shape().size() != 4) {
    throw std::invalid_argument(
        "[quantized_flatten] expected input [N, H, W, C], [N, L, C] or [N, features], got " +
        shape_string(x.shape()));
  }
  const auto codes = quantized(x);
  const std::int64_t batch = x.dim(0);
  const std::int64_t channels = x.dim(-1);
  const std::int64_t pixels = x.dim(1) * x.dim(2);
  const bool same_order = pixels == 1 || channels == 1;
  Tensor flat = codes->codes.reshape({batch, pixels * channels});
  if (!same_order) {
    flat = Tensor::empty(flat.shape(), flat.dtype(), flat.device());
    visit_all_codes(flat.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run(flat.device(), kernels::Transpose<Code>{.batch = batch,
                                                  .rows = pixels,
                                                  .columns = channels,
                                                  .x = codes->codes.data<Code>(),
                                                  .y = flat.data<Code>()});
    });
  }
  Variable y = make_variable(with_codes(*codes, flat));
  if (!should_record({x})) return y;
  const auto gradient = [=](const Tensor& grad_output, const Shape& input,
                            const std::vector<Tensor>&) {
    if (same_order) return grad_output.reshape(input);
    Tensor grad = Tensor::empty(input, DType::kF32, grad_output.device());
    run(grad.device(), kernels::Transpose<float>{.batch = batch,
                                                 .rows = channels,
                                                 .columns = pixels,
                                                 .x = grad_output.data<float>(),
                                                 .y = grad.data<float>()});
    return grad;
  };
  return record(
      std::move(y),
      std::make_shared<CodeFunction>("quantized_flatten", gradient, std::vector<Tensor>{}), {x});
}

Variable activation_codes(const Variable& x, kernels::Activation activation) {
  if (activation == kernels::Activation::kNone) return x;
  const auto codes = quantized(x);
  const std::int64_t n = codes->codes.size();
  const Device device = codes->codes.device();
  const bool recorded = should_record({x});
  const Tensor mask = recorded ? empty_mask(n, device) : Tensor();
  Tensor rectified = Tensor::empty(x.shape(), codes->codes.dtype(), device);
  visit_all_codes(rectified.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(device,
        kernels::ActivateCodes<Code>{.n = n,
                                     .activation = activation,
                                     .x = codes->codes.data<Code>(),
                                     .scale = codes->qparams.scale.data<float>(),
                                     .zero_point = codes->qparams.zero_point.data<std::int32_t>(),
                                     .range = codes->range,
                                     .codes = rectified.data<Code>(),
                                     .mask = bits_of(mask)});
  });
  Variable y = make_variable(with_codes(*codes, rectified));
  if (!recorded) return y;
  const auto gradient = [](const Tensor& grad_output, const Shape&,
                           const std::vector<Tensor>& saved) {
    return masked_gradient(grad_output, saved[0]);
  };
  return record(
      std::move(y),
      std::make_shared<CodeFunction>(
          activation == kernels::Activation::kRelu6 ? "quantized_relu6" : "quantized_relu",
          gradient, std::vector<Tensor>{mask}, /*takes_bf16=*/true),
      {x});
}

Variable dropout_codes(const Variable& x, const DropoutOptions& options, Rng& rng) {
  const double p = options.p;
  if (p == 0) return x;
  const auto codes = quantized(x);
  const Device device = codes->codes.device();
  const Tensor mask = dropout_mask(x.shape(), options, rng, device);
  Tensor kept = Tensor::empty(x.shape(), codes->codes.dtype(), device);
  visit_all_codes(kept.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(device,
        kernels::DropCodes<Code>{.n = kept.size(),
                                 .mask = mask.data<std::uint8_t>(),
                                 .x = codes->codes.data<Code>(),
                                 .zero_point = codes->qparams.zero_point.data<std::int32_t>(),
                                 .codes = kept.data<Code>()});
  });
  QuantizedValue value = with_codes(*codes, kept);
  value.qparams.scale = Tensor::empty({1}, DType::kF32, device);
  run(device, kernels::Scale<float>{.n = 1,
                                    .x = codes->qparams.scale.data<float>(),
                                    .factor = static_cast<float>(1.0 / (1.0 - p)),
                                    .y = value.qparams.scale.data<float>()});
  Variable y = make_variable(std::move(value));
  if (!should_record({x})) return y;
  const auto gradient = [p](const Tensor& grad_output, const Shape&,
                            const std::vector<Tensor>& saved) {
    return apply_dropout(grad_output, saved[0], p);
  };
  return record(
      std::move(y),
      std::make_shared<CodeFunction>("quantized_dropout", gradient, std::vector<Tensor>{mask}),
      {x});
}

Variable add_codes(const Variable& a, const Variable& b, kernels::Activation activation,
                   ActivationQuantizer& output, ForwardContext& context) {
  const Shape shape = ops::broadcast_shape("quantized_add", a.shape(), b.shape());
  const CodeSum sum{repeated(a, shape), repeated(b, shape), activation};
  const bool recorded = should_record({a, b});
  std::function<Tensor()> values = [sum] { return sum.values(); };
  Tensor mask;
  QuantizedValue y;
  if (sum.a->wide() || sum.b->wide() || output.scheme().wide()) {
    values = [sum] { return real_sum(*sum.a, *sum.b, sum.activation); };
    y = round_reals(real_sum(*sum.a, *sum.b, kernels::Activation::kNone), activation, values,
                    output, recorded ? &mask : nullptr, context);
  } else {
    y = output.empty_output(shape, values, context);
    if (recorded) mask = empty_mask(y.codes.size(), y.codes.device());
    sum.write(y, mask);
  }
  Variable result = make_variable(std::move(y));
  if (!recorded) return result;
  const auto gradient = [](const Tensor& grad_output, const Shape&,
                           const std::vector<Tensor>& saved) {
    return masked_gradient(grad_output, saved[0]);
  };
  result = record(std::move(result),
                  std::make_shared<DescribedCodeFunction<kernels::Activation>>(
                      "quantized_add", activation, gradient, std::vector<Tensor>{mask},
                      /*takes_bf16=*/a.shape() == b.shape()),
                  {a, b});
  return output.learn_output(result, {values, {sum.a->codes, sum.b->codes}}, context);
}

}  // namespace steelyard::qat
