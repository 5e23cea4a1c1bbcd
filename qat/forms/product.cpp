#include "steelyard/qat/forms/product.h"

#include <stdexcept>
#include <type_traits>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"
#include "steelyard/qat/forms/product_parts.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// The product, and what makes codes of its sums if `to` is not null.
template <class K>
void run_product(const K& product, const Tensor& acc, const Requantization* to) {
  if (to == nullptr) return run(acc.device(), product);
  visit_codes(to->output.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(acc.device(), kernels::RequantizedProduct<K, Code>{product, to->kernel<Code>(acc)});
  });
}

kernels::OrderedWeights ordered(const WeightCodes& weight) {
  return {data_or_null<std::int8_t>(weight.ordered), data_or_null<std::int32_t>(weight.sums)};
}

// The gradient of an input from codes of weights, on a GPU: in bf16 only of one in bf16.
void codes_backward_input(const kernels::Conv2dShape& shape, const Tensor& grad,
                          const WeightCodes& weight, const Tensor& grad_x) {
  visit_gradient(grad, [&](const auto* grad_y) {
    visit_gradient(grad_x, [&](const auto* result) {
      using Gradient = std::remove_cvref_t<decltype(*grad_y)>;
      using Result = std::remove_cvref_t<decltype(*result)>;
      if constexpr (std::is_same_v<Gradient, kernels::BFloat16> || std::is_same_v<Result, float>) {
        kernels::run(cuda_queue(grad.device()), kernels::CodesBackwardInput<Gradient, Result>{
                                                    .shape = shape,
                                                    .grad_y = grad_y,
                                                    .w = weight.codes.data<std::int8_t>(),
                                                    .scales = weight.qparams.scale.size(),
                                                    .scale = weight.qparams.scale.data<float>(),
                                                    .grad_x = static_cast<Result*>(grad_x.raw())});
      }
    });
  });
}

// The gradient of weights from codes of inputs.
void codes_backward_weight(const kernels::Conv2dShape& shape, const QuantizedValue& x,
                           const Tensor& grad, const Tensor& weight_mask,
                           const Tensor& grad_weight) {
  visit_codes(x.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    visit_gradient(grad, [&](const auto* grad_y) {
      using Gradient = std::remove_cvref_t<decltype(*grad_y)>;
      run(grad.device(), kernels::CodesBackwardWeight<Code, Gradient>{
                             .shape = shape,
                             .x = x.codes.data<Code>(),
                             .scale = x.qparams.scale.data<float>(),
                             .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                             .grad_y = grad_y,
                             .mask = data_or_null<std::uint8_t>(weight_mask),
                             .grad_w = grad_weight.data<float>()});
    });
  });
}

// Whether kernels of gradients read the codes of x: others are too wide, or have a scale for each
// row.
bool has_codes_of_kernels(const QuantizedValue& x) { return !x.wide() && !x.dynamic; }

// Codes of weights that CodesBackwardInput reads: one scale for each output, or one.
bool has_output_scales(const kernels::Conv2dShape& shape, const QParamTensors& weight) {
  return !weight.zero_point.defined() && weight.scale.size() <= shape.out_channels;
}
bool gpu_reads_bf16_gradients(const kernels::Conv2dShape& shape, const QuantizedValue& x,
                              const QParamTensors& weight) {
  return has_codes_of_kernels(x) && has_output_scales(shape, weight) &&
         kernels::reads_bf16_gradients(cuda_queue(x.codes.device()), shape);
}

class LinearProduct : public Product {
 public:
  std::string name() const override { return "quantized_linear"; }

  Shape output_shape(const Shape& x, const Shape& weight) const override {
    if (x.empty() || weight.size() != 2 || x.back() != weight[1]) {
      throw std::invalid_argument("[quantized_linear] expected input [..., " +
                                  std::to_string(weight.at(1)) + "], got " + shape_string(x));
    }
    Shape shape = x;
    shape.back() = weight[0];
    return shape;
  }

  void grouped(const QuantizedValue& x, const WeightCodes& weight, const Tensor& bias,
               const Tensor& y) const override {
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      multiply_groups(x.codes.data<Code>(), x, 1, weight, bias, {}, y);
    });
  }

  bool reads_bf16_gradients(const QuantizedValue& x, const Shape& weight,
                            const QParamTensors& weight_qparams) const override {
    return x.codes.device().kind != Device::Kind::kCpu &&
           gpu_reads_bf16_gradients(as_conv(x.codes.size(), weight), x, weight_qparams);
  }

  void grad_input(const Tensor& grad, const WeightCodes& codes,
                  const Tensor& grad_x) const override {
    if (grad.dtype() == DType::kBF16) {
      return codes_backward_input(as_conv(grad_x.size(), codes.codes.shape()), grad, codes, grad_x);
    }
    const Tensor weight = dequantized(codes);
    const kernels::MatmulShape shape{.m = rows(grad), .n = weight.dim(1), .k = weight.dim(0)};
    run(grad.device(), kernels::Matmul<float>{.shape = shape,
                                              .a = grad.data<float>(),
                                              .b = weight.data<float>(),
                                              .c = grad_x.data<float>()});
  }

  void grad_weight(const QuantizedValue& codes, const Tensor& grad, const Tensor& weight_mask,
                   const Tensor& grad_weight) const override {
    if (grad.dtype() == DType::kBF16) {
      return codes_backward_weight(as_conv(codes.codes.size(), grad_weight.shape()), codes, grad,
                                   weight_mask, grad_weight);
    }
    const Tensor x = dequantized(codes);
    const kernels::MatmulShape shape{
        .m = grad_weight.dim(0), .n = grad_weight.dim(1), .k = rows(grad), .transpose_a = true};
    run(grad.device(), kernels::Matmul<float>{.shape = shape,
                                              .a = grad.data<float>(),
                                              .b = x.data<float>(),
                                              .c = grad_weight.data<float>()});
    apply_weight_mask(weight_mask, grad_weight);
  }

  Variable float_forward(const Variable& x, const Variable& weight,
                         const Variable& bias) const override {
    return linear(x, weight, bias);
  }

 private:
  static std::int64_t rows(const Tensor& grad) { return grad.size() / grad.dim(-1); }
  // The map of an input with so many elements as a convolution of images of one pixel.
  static kernels::Conv2dShape as_conv(std::int64_t inputs, const Shape& weight) {
    return {.batch = weight[1] == 0 ? 0 : inputs / weight[1],
            .in_h = 1,
            .in_w = 1,
            .in_channels = weight[1],
            .out_channels = weight[0]};
  }

  void multiply(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc,
                const Requantization* to) const override {
    const std::int64_t out = weight.codes.dim(0);
    const std::int64_t in = weight.codes.dim(1);
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run_product(
          kernels::IntegerMatmul<Code>{.m = x.codes.size() / in,
                                       .n = out,
                                       .k = in,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                       .w = weight.codes.data<std::int8_t>(),
                                       .acc = acc.data<std::int32_t>(),
                                       .largest = kernels::largest_product(x.range, weight.range),
                                       .ordered = ordered(weight)},
          acc, to);
    });
  }
};

class Conv2dProduct : public Product, public Describes<Conv2dGeometry> {
 public:
  explicit Conv2dProduct(const Conv2dGeometry& geometry) : geometry_(geometry) {}
  std::string name() const override { return "quantized_conv2d"; }
  std::int64_t groups() const override { return geometry_.groups; }
  std::int64_t row_size(const Shape& x) const override {
    return x.empty() || x[0] == 0 ? 0 : shape_size(x) / x[0];
  }
  Conv2dGeometry described() const override { return geometry_; }

  Shape output_shape(const Shape& x, const Shape& weight) const override {
    const kernels::Conv2dShape shape = conv2d_shape(x, weight, geometry_);
    return {shape.batch, shape.out_h(), shape.out_w(), shape.out_channels};
  }

  void grouped(const QuantizedValue& x, const WeightCodes& weight, const Tensor& bias,
               const Tensor& y) const override {
    const auto shape = conv2d_shape(x.codes.shape(), weight.codes.shape(), geometry_);
    const std::int64_t terms = shape.in_channels_per_group() * shape.kernel_h * shape.kernel_w;
    const Tensor patches = Tensor::empty({shape.batch * shape.out_h() * shape.out_w(), terms},
                                         x.codes.dtype(), y.device());
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      for (std::int64_t group = 0; group < shape.groups; ++group) {
        run(y.device(),
            kernels::CodePatches<Code>{.n = patches.size(),
                                       .shape = shape,
                                       .out_h = shape.out_h(),
                                       .out_w = shape.out_w(),
                                       .group = group,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                       .zero_points = x.qparams.zero_point.size(),
                                       .patches = patches.data<Code>()});
        multiply_groups(patches.data<Code>(), x, shape.out_h() * shape.out_w(), weight, bias,
                        {shape.groups, group}, y);
      }
    });
  }

  bool reads_bf16_gradients(const QuantizedValue& x, const Shape& weight,
                            const QParamTensors& weight_qparams) const override {
    const auto shape = conv2d_shape(x.codes.shape(), weight, geometry_);
    return x.codes.device().kind == Device::Kind::kCpu
               ? has_codes_of_kernels(x) && kernels::reads_bf16_gradients(shape)
               : gpu_reads_bf16_gradients(shape, x, weight_qparams);
  }

  void grad_input(const Tensor& grad, const WeightCodes& weight,
                  const Tensor& grad_x) const override {
    const auto shape = conv2d_shape(grad_x.shape(), weight.codes.shape(), geometry_);
    if (grad.device().kind == Device::Kind::kCpu) {
      return visit_gradient(grad, [&](const auto* grad_y) {
        using Gradient = std::remove_cvref_t<decltype(*grad_y)>;
        kernels::run(
            kernels::Conv2dBackwardInput<float, Gradient>{.shape = shape,
                                                          .grad_y = grad_y,
                                                          .w = dequantized(weight).data<float>(),
                                                          .grad_x = grad_x.data<float>()});
      });
    }
    if (!has_output_scales(shape, weight.qparams)) {
      return run(grad.device(),
                 kernels::Conv2dBackwardInput<float>{.shape = shape,
                                                     .grad_y = grad.data<float>(),
                                                     .w = dequantized(weight).data<float>(),
                                                     .grad_x = grad_x.data<float>()});
    }
    codes_backward_input(shape, grad, weight, grad_x);
  }

  void grad_weight(const QuantizedValue& x, const Tensor& grad, const Tensor& weight_mask,
                   const Tensor& grad_weight) const override {
    const auto shape = conv2d_shape(x.codes.shape(), grad_weight.shape(), geometry_);
    if (!has_codes_of_kernels(x)) {
      run(grad.device(), kernels::Conv2dBackwardWeight<float>{.shape = shape,
                                                              .x = dequantized(x).data<float>(),
                                                              .grad_y = grad.data<float>(),
                                                              .grad_w = grad_weight.data<float>()});
      return apply_weight_mask(weight_mask, grad_weight);
    }
    codes_backward_weight(shape, x, grad, weight_mask, grad_weight);
  }

  Variable float_forward(const Variable& x, const Variable& weight,
                         const Variable& bias) const override {
    return conv2d(x, weight, bias, geometry_);
  }

 private:
  void multiply(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc,
                const Requantization* to) const override {
    const auto shape = conv2d_shape(x.codes.shape(), weight.codes.shape(), geometry_);
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run_product(
          kernels::IntegerConv2d<Code>{.shape = shape,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                       .w = weight.codes.data<std::int8_t>(),
                                       .acc = acc.data<std::int32_t>(),
                                       .largest = kernels::largest_product(x.range, weight.range),
                                       .ordered = ordered(weight)},
          acc, to);
    });
  }

  Conv2dGeometry geometry_;
};

class Conv1dProduct : public Conv2dProduct {
 public:
  using Conv2dProduct::Conv2dProduct;

  Variable by_output_channel(const Variable& parameter) const override {
    Shape shape = parameter.shape();
    if (shape.size() == 3) {
      shape.insert(shape.begin() + 2, 1);
    } else {
      shape.erase(shape.begin() + 2);
    }
    return reshape(parameter, std::move(shape));
  }
};

}  // namespace

namespace {

void requantize_fixed(const Tensor& acc, const Requantization& to) {
  const kernels::Rounding rounding = to.output.rounding;
  const Tensor multiplier = Tensor::empty({to.op.channels}, DType::kI32, acc.device());
  const Tensor shift = Tensor::empty({to.op.channels}, DType::kI32, acc.device());
  run(acc.device(), kernels::FixedMultipliers{.n = to.op.channels,
                                              .scales = to.weight_scale.size(),
                                              .rounding = rounding,
                                              .in_scale = to.input_scale.data<float>(),
                                              .weight_scale = to.weight_scale.data<float>(),
                                              .scale = to.output.qparams.scale.data<float>(),
                                              .multiplier = multiplier.data<std::int32_t>(),
                                              .shift = shift.data<std::int32_t>()});
  run(acc.device(),
      kernels::FixedRequantize{.op = to.op,
                               .rounding = rounding,
                               .acc = acc.data<std::int32_t>(),
                               .bias = to.bias_data(),
                               .product_scale = to.product_scale.data<float>(),
                               .multiplier = multiplier.data<std::int32_t>(),
                               .shift = shift.data<std::int32_t>(),
                               .scale = to.output.qparams.scale.data<float>(),
                               .zero_point = to.output.qparams.zero_point.data<std::int32_t>(),
                               .range = to.output.range,
                               .codes = to.output.codes.data<std::int8_t>(),
                               .mask = data_or_null<std::uint8_t>(to.mask)});
}

}  // namespace

void requantize(const Tensor& acc, const Requantization& to) {
  if (kernels::is_fixed_point(to.output.rounding)) return requantize_fixed(acc, to);
  visit_codes(to.output.codes.dtype(),
              [&](auto* tag) { run(acc.device(), to.kernel<CodeOf<decltype(tag)>>(acc)); });
}

std::shared_ptr<const Product> linear_product() { return std::make_shared<LinearProduct>(); }

std::shared_ptr<const Product> conv2d_product(const Conv2dGeometry& geometry) {
  return std::make_shared<Conv2dProduct>(geometry);
}
std::shared_ptr<const Product> conv1d_product(const Conv2dGeometry& geometry) {
  return std::make_shared<Conv1dProduct>(geometry);
}

}  // namespace steelyard::qat
