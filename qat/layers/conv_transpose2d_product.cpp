#include "steelyard/qat/layers/conv_transpose2d_product.h"

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/qat/forms/product_parts.h"

namespace steelyard::qat {
namespace {

class SwapChannelsFunction : public Function {
 public:
  explicit SwapChannelsFunction(std::int64_t groups) : groups_(groups) {}
  std::string name() const override { return "swap_channels"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {swapped_channels(grad_output, groups_)};
  }

 private:
  std::int64_t groups_;
};

class ConvTranspose2dProduct : public Product, public Describes<ConvTranspose2dGeometry> {
 public:
  explicit ConvTranspose2dProduct(const ConvTranspose2dGeometry& geometry) : geometry_(geometry) {}
  std::string name() const override { return "quantized_conv_transpose2d"; }
  std::int64_t groups() const override { return geometry_.conv.groups; }
  std::int64_t row_size(const Shape& x) const override {
    return x.empty() || x[0] == 0 ? 0 : shape_size(x) / x[0];
  }
  ConvTranspose2dGeometry described() const override { return geometry_; }

  Variable by_output_channel(const Variable& parameter) const override {
    const Tensor value = swapped_channels(parameter.value(), groups());
    const Variable weight = Variable::deferred(
        value.shape(), value.dtype(), [value] { return value; },
        parameter.companion<WeightCompanion>());
    if (!should_record({parameter})) return weight;
    return record(weight, std::make_shared<SwapChannelsFunction>(groups()), {parameter});
  }

  Shape output_shape(const Shape& x, const Shape& weight) const override {
    const kernels::Conv2dShape s = gradient_shape(x, weight);
    return {s.batch, s.in_h, s.in_w, s.in_channels};
  }

  void grouped(const QuantizedValue& x, const WeightCodes& weight, const Tensor& bias,
               const Tensor& y) const override {
    const auto conv = transposed_conv(x.codes.shape(), weight.codes.shape(), geometry_);
    const std::int64_t pixels = conv.height.out * conv.width.out;
    const std::int64_t terms = weight.codes.size() / conv.out_channels;
    const Tensor patches = Tensor::empty({conv.batch * pixels, terms}, x.codes.dtype(), y.device());
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      for (std::int64_t group = 0; group < conv.groups; ++group) {
        run(y.device(), kernels::TransposedPatches<Code>{
                            .n = patches.size(),
                            .in_channels = conv.in_channels,
                            .channels = conv.in_channels / conv.groups,
                            .group = group,
                            .height = conv.height,
                            .width = conv.width,
                            .x = x.codes.data<Code>(),
                            .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                            .zero_points = x.qparams.zero_point.size(),
                            .patches = patches.data<Code>()});
        multiply_groups(patches.data<Code>(), x, pixels, weight, bias, {conv.groups, group}, y);
      }
    });
  }

  void grad_input(const Tensor& grad, const WeightCodes& weight,
                  const Tensor& grad_x) const override {
    run(grad.device(),
        kernels::Conv2d<float>{.shape = gradient_shape(grad_x.shape(), weight.codes.shape()),
                               .x = grad.data<float>(),
                               .w = swapped_channels(dequantized(weight), groups()).data<float>(),
                               .bias = nullptr,
                               .y = grad_x.data<float>()});
  }

  void grad_weight(const QuantizedValue& x, const Tensor& grad, const Tensor& weight_mask,
                   const Tensor& grad_weight) const override {
    const auto shape = gradient_shape(x.codes.shape(), grad_weight.shape());
    const Tensor grad_parameter =
        Tensor::empty(parameter_shape(grad_weight.shape()), DType::kF32, grad.device());
    run(grad.device(),
        kernels::Conv2dBackwardWeight<float>{.shape = shape,
                                             .x = grad.data<float>(),
                                             .grad_y = dequantized(x).data<float>(),
                                             .grad_w = grad_parameter.data<float>()});
    grad_weight.copy_from(swapped_channels(grad_parameter, groups()));
    apply_weight_mask(weight_mask, grad_weight);
  }

  Variable float_forward(const Variable& x, const Variable& weight,
                         const Variable& bias) const override {
    return conv_transpose2d(x, by_output_channel(weight), bias, geometry_);
  }

 private:
  void multiply(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc,
                const Requantization* to) const override {
    const auto conv = transposed_conv(x.codes.shape(), weight.codes.shape(), geometry_);
    const kernels::Conv2dShape shape = conv.convolution();
    const Tensor weights = Tensor::empty({shape.weight_size()}, DType::kI8, acc.device());
    run(acc.device(), kernels::PhaseWeights<std::int8_t>{.n = weights.size(),
                                                         .channels = shape.in_channels_per_group(),
                                                         .height = conv.height,
                                                         .width = conv.width,
                                                         .w = weight.codes.data<std::int8_t>(),
                                                         .zero_points = nullptr,
                                                         .phases = weights.data<std::int8_t>()});
    const Tensor phases = Tensor::empty({shape.output_size()}, DType::kI32, acc.device());
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run(acc.device(),
          kernels::IntegerConv2d<Code>{.shape = shape,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                       .w = weights.data<std::int8_t>(),
                                       .acc = phases.data<std::int32_t>(),
                                       .largest = kernels::largest_product(x.range, weight.range)});
    });
    run(acc.device(), kernels::PixelsOfPhases<std::int32_t>{.n = acc.size(),
                                                            .channels = conv.out_channels,
                                                            .height = conv.height,
                                                            .width = conv.width,
                                                            .phases = phases.data<std::int32_t>(),
                                                            .pixels = acc.data<std::int32_t>()});
    if (to != nullptr) requantize(acc, *to);
  }

  Shape parameter_shape(const Shape& w) const {
    return {w[1] * groups(), w[0] / groups(), w[2], w[3]};
  }
  // The shape of the convolution that it is the gradient of.
  kernels::Conv2dShape gradient_shape(const Shape& x, const Shape& weight) const {
    return conv_transpose2d_shape(x, parameter_shape(weight), geometry_);
  }

  ConvTranspose2dGeometry geometry_;
};

}  // namespace

Tensor swapped_channels(const Tensor& weight, std::int64_t groups) {
  const Shape& s = weight.shape();
  const std::int64_t outer = s[0] / groups, inner = s[1], taps = s[2] * s[3];
  const ops::Part part{.shape = {groups, inner, outer, taps},
                       .strides = {outer * inner * taps, taps, inner * taps, 1}};
  return ops::gathered("swap_channels", weight, part).reshape({groups * inner, outer, s[2], s[3]});
}

std::shared_ptr<const Product> conv_transpose2d_product(const ConvTranspose2dGeometry& geometry) {
  return std::make_shared<ConvTranspose2dProduct>(geometry);
}

}  // namespace steelyard::qat
