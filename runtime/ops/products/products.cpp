#include "steelyard/runtime/ops/products/products.h"

#include <utility>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/transposed_conv/transposed_conv.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// The outputs of a group of channels, of so many, from rows of codes.
template <typename Code>
void multiply_groups(const Code* codes, const ProductInput& x, const PreparedNode& weight,
                     const Tensor& bias, std::int64_t groups, std::int64_t group, const Tensor& y) {
  const std::int64_t channels = weight.codes.dim(0), rows = y.size() / channels;
  const std::int64_t columns = channels / groups, first = group * columns;
  const std::int64_t terms = weight.codes.size() / channels;
  const std::int64_t scales = weight.scale.size() / channels;  // of an output
  const std::int32_t* zero_point = data_or_null<std::int32_t>(weight.zero_point);
  const kernels::GroupedScales of_x{&x.scale, &x.zero_point, 0, 0, 1};
  const kernels::GroupedScales of_w{weight.scale.data<float>() + first * scales,
                                    zero_point == nullptr ? nullptr : zero_point + first * scales,
                                    scales, scales > 1 ? 1 : 0, 1};
  kernels::run(kernels::GroupedProduct<Code>{
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
      .largest = kernels::largest_product(x.range, weight.range, zero_point == nullptr)});
}

void requantize(const Tensor& acc, const OutputRule& to) {
  visit_codes(to.codes.dtype(),
              [&](auto* tag) { kernels::run(to.kernel<CodeOf<decltype(tag)>>(acc)); });
}

// The product, and what makes codes of its sums if `to` is not null.
template <class K>
void run_product(const K& product, const Tensor& acc, const OutputRule* to) {
  if (to == nullptr) return kernels::run(product);
  visit_codes(to->codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::RequantizedProduct<K, Code>{product, to->kernel<Code>(acc)});
  });
}

class LinearProduct : public IntegerProduct {
 public:
  Shape output_shape(const Shape& x, const Shape& weight) const override {
    Shape shape = x;
    shape.back() = weight[0];
    return shape;
  }

  void multiply(const ProductInput& x, const Tensor& weight_codes, kernels::CodeRange weight_range,
                const Tensor& acc, kernels::KeptWeights* kept,
                const OutputRule* to) const override {
    const std::int64_t out = weight_codes.dim(0), in = weight_codes.dim(1);
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run_product(
          kernels::IntegerMatmul<Code>{.m = x.codes.size() / in,
                                       .n = out,
                                       .k = in,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = &x.zero_point,
                                       .w = weight_codes.data<std::int8_t>(),
                                       .acc = data_or_null<std::int32_t>(acc),
                                       .largest = kernels::largest_product(x.range, weight_range),
                                       .kept = kept},
          acc, to);
    });
  }

  void grouped(const ProductInput& x, const PreparedNode& weight, const Tensor& bias,
               const Tensor& y) const override {
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      multiply_groups(x.codes.data<Code>(), x, weight, bias, 1, 0, y);
    });
  }
};

class Conv2dProduct : public IntegerProduct {
 public:
  explicit Conv2dProduct(const Conv2dGeometry& geometry) : geometry_(geometry) {}
  std::int64_t groups() const override { return geometry_.groups; }

  Shape output_shape(const Shape& x, const Shape& weight) const override {
    const kernels::Conv2dShape shape = conv2d_shape(x, weight, geometry_);
    return {shape.batch, shape.out_h(), shape.out_w(), shape.out_channels};
  }

  void multiply(const ProductInput& x, const Tensor& weight_codes, kernels::CodeRange weight_range,
                const Tensor& acc, kernels::KeptWeights* kept,
                const OutputRule* to) const override {
    const auto shape = conv2d_shape(x.codes.shape(), weight_codes.shape(), geometry_);
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run_product(
          kernels::IntegerConv2d<Code>{.shape = shape,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = &x.zero_point,
                                       .w = weight_codes.data<std::int8_t>(),
                                       .acc = data_or_null<std::int32_t>(acc),
                                       .largest = kernels::largest_product(x.range, weight_range),
                                       .kept = kept},
          acc, to);
    });
  }

  void grouped(const ProductInput& x, const PreparedNode& weight, const Tensor& bias,
               const Tensor& y) const override {
    const auto shape = conv2d_shape(x.codes.shape(), weight.codes.shape(), geometry_);
    const std::int64_t terms = shape.in_channels_per_group() * shape.kernel_h * shape.kernel_w;
    const Tensor patches =
        Tensor::empty({shape.batch * shape.out_h() * shape.out_w(), terms}, x.codes.dtype());
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      for (std::int64_t group = 0; group < shape.groups; ++group) {
        kernels::run(kernels::CodePatches<Code>{.n = patches.size(),
                                                .shape = shape,
                                                .out_h = shape.out_h(),
                                                .out_w = shape.out_w(),
                                                .group = group,
                                                .x = x.codes.data<Code>(),
                                                .zero_point = &x.zero_point,
                                                .zero_points = 1,
                                                .patches = patches.data<Code>()});
        multiply_groups(patches.data<Code>(), x, weight, bias, shape.groups, group, y);
      }
    });
  }

 private:
  Conv2dGeometry geometry_;
};

// What the kernel PixelsOfPhases does, with the divisions of a pixel done once for its channels.
void put_side_by_side(const kernels::TransposedConv& conv, const std::int32_t* phases,
                      std::int32_t* pixels) {
  const kernels::TransposedSide &height = conv.height, &width = conv.width;
  const std::int64_t apart = conv.phases(), lines = conv.batch * height.out;
#pragma omp parallel for if (lines * width.out * conv.out_channels >= kElementsForThreads)
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int64_t row = line % height.out + height.first();
    const std::int64_t of_line =
        (line / height.out * height.positions() + row / height.stride) * width.positions();
    std::int32_t* to = pixels + line * width.out * conv.out_channels;
    for (std::int64_t at = width.first(); at < width.first() + width.out; ++at) {
      const std::int32_t* from = phases +
                                 (of_line + at / width.stride) * conv.out_channels * apart +
                                 row % height.stride * width.stride + at % width.stride;
      for (std::int64_t c = 0; c < conv.out_channels; ++c, from += apart) *to++ = *from;
    }
  }
}

class ConvTranspose2dProduct : public IntegerProduct {
 public:
  explicit ConvTranspose2dProduct(const ConvTranspose2dGeometry& geometry) : geometry_(geometry) {}
  std::int64_t groups() const override { return geometry_.conv.groups; }

  Shape output_shape(const Shape& x, const Shape& weight) const override {
    const auto conv = transposed_conv(x, weight, geometry_);
    return {conv.batch, conv.height.out, conv.width.out, conv.out_channels};
  }

  void multiply(const ProductInput& x, const Tensor& weight_codes, kernels::CodeRange weight_range,
                const Tensor& acc, kernels::KeptWeights* kept,
                const OutputRule* to) const override {
    const auto conv = transposed_conv(x.codes.shape(), weight_codes.shape(), geometry_);
    const kernels::Conv2dShape shape = conv.convolution();
    const bool are_kept = kept != nullptr && kept->form != kernels::KeptWeights::Form::kNone;
    const Tensor weight = Tensor::empty({are_kept ? 0 : shape.weight_size()}, DType::kI8);
    kernels::run(kernels::PhaseWeights<std::int8_t>{.n = weight.size(),
                                                    .channels = shape.in_channels_per_group(),
                                                    .height = conv.height,
                                                    .width = conv.width,
                                                    .w = weight_codes.data<std::int8_t>(),
                                                    .zero_points = nullptr,
                                                    .phases = weight.data<std::int8_t>()});
    const Tensor phases = Tensor::empty({shape.output_size()}, DType::kI32);
    visit_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      kernels::run(
          kernels::IntegerConv2d<Code>{.shape = shape,
                                       .x = x.codes.data<Code>(),
                                       .zero_point = &x.zero_point,
                                       .w = weight.data<std::int8_t>(),
                                       .acc = phases.data<std::int32_t>(),
                                       .largest = kernels::largest_product(x.range, weight_range),
                                       .kept = kept});
    });
    const Tensor sums = to == nullptr ? acc : Tensor::empty(to->codes.shape(), DType::kI32);
    put_side_by_side(conv, phases.data<std::int32_t>(), sums.data<std::int32_t>());
    if (to != nullptr) requantize(sums, *to);
  }

  void grouped(const ProductInput& x, const PreparedNode& weight, const Tensor& bias,
               const Tensor& y) const override {
    const auto conv = transposed_conv(x.codes.shape(), weight.codes.shape(), geometry_);
    const std::int64_t pixels = conv.height.out * conv.width.out;
    const std::int64_t terms = weight.codes.size() / conv.out_channels;
    const Tensor patches = Tensor::empty({conv.batch * pixels, terms}, x.codes.dtype());
    visit_all_codes(x.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      for (std::int64_t group = 0; group < conv.groups; ++group) {
        kernels::run(kernels::TransposedPatches<Code>{.n = patches.size(),
                                                      .in_channels = conv.in_channels,
                                                      .channels = conv.in_channels / conv.groups,
                                                      .group = group,
                                                      .height = conv.height,
                                                      .width = conv.width,
                                                      .x = x.codes.data<Code>(),
                                                      .zero_point = &x.zero_point,
                                                      .zero_points = 1,
                                                      .patches = patches.data<Code>()});
        multiply_groups(patches.data<Code>(), x, weight, bias, conv.groups, group, y);
      }
    });
  }

 private:
  ConvTranspose2dGeometry geometry_;
};

// The high and the low bytes of codes and of their zero point, as codes of 8 bits each.
void split(const ProductInput& x, ProductInput& high, ProductInput& low) {
  constexpr std::int32_t kLowestOfSigned = -(1 << 15);
  const std::int32_t lowest = x.range.qmin < 0 ? kLowestOfSigned : 0;
  kernels::run(kernels::SplitCodes<std::uint8_t>{.n = x.codes.size(),
                                                 .lowest = lowest,
                                                 .codes = x.codes.data<std::int32_t>(),
                                                 .high = high.codes.data<std::uint8_t>(),
                                                 .low = low.codes.data<std::uint8_t>()});
  kernels::run(kernels::SplitCodes<std::int32_t>{.n = 1,
                                                 .lowest = lowest,
                                                 .codes = &x.zero_point,
                                                 .high = &high.zero_point,
                                                 .low = &low.zero_point});
}

}  // namespace

kernels::KeptWeights* PreparedNode::kept(const ProductInput& x) const {
  if (packing == nullptr) return nullptr;
  std::call_once(packing->once, [&] {
    Shape none = x.codes.shape();
    none[0] = 0;
    const Tensor inputs = Tensor::empty(std::move(none), x.codes.dtype());
    const Tensor sums =
        Tensor::empty(product->output_shape(inputs.shape(), codes.shape()), DType::kI32);
    kernels::KeptWeights packed;  // whole or not at all: without memory the next run packs them
    product->multiply({.codes = inputs, .zero_point = x.zero_point, .range = x.range},
                      packing->codes, range, sums, &packed);
    packing->weights = std::move(packed);
    packing->codes = Tensor();
    if (lean) release_cached_memory();  // which keeps what it is given, for tensors of that size
  });
  return &packing->weights;
}

std::shared_ptr<const IntegerProduct> linear_product() { return std::make_shared<LinearProduct>(); }
std::shared_ptr<const IntegerProduct> conv2d_product(const Conv2dGeometry& geometry) {
  return std::make_shared<Conv2dProduct>(geometry);
}
std::shared_ptr<const IntegerProduct> conv_transpose2d_product(
    const ConvTranspose2dGeometry& geometry) {
  return std::make_shared<ConvTranspose2dProduct>(geometry);
}

// sum (x - z_x)(w - z_w) = sum (x - z_x) w - z_w sum (x - z_x): the second sum is the product with
// weights of code 1, of one more output for each group of channels.
void multiply_codes(const IntegerProduct& product, const ProductInput& x,
                    const PreparedNode& weight, kernels::CodeRange weight_range,
                    const Tensor& acc) {
  product.multiply(x, weight.codes, weight_range, acc, weight.kept(x));
  if (!weight.zero_point.defined() || acc.size() == 0) return;
  Shape shape = weight.codes.shape();
  const std::int64_t channels = shape[0];
  shape[0] = product.groups();
  const Tensor ones = Tensor::full(shape, 1, DType::kI8);
  const Tensor sums = Tensor::empty(product.output_shape(x.codes.shape(), shape), DType::kI32);
  product.multiply(x, ones, {0, 1}, sums, nullptr);
  kernels::run(kernels::SubtractZeroPoints{.rows = acc.size() / channels,
                                           .columns = channels,
                                           .groups = shape[0],
                                           .zero_points = weight.zero_point.size(),
                                           .sums = sums.data<std::int32_t>(),
                                           .zero_point = weight.zero_point.data<std::int32_t>(),
                                           .acc = acc.data<std::int32_t>()});
}

// Sums that nothing else changes are requantized where they are computed.
void multiply_to_codes(const IntegerProduct& product, const ProductInput& x,
                       const PreparedNode& weight, kernels::CodeRange weight_range,
                       const OutputRule& to) {
  if (!weight.zero_point.defined()) {
    return product.multiply(x, weight.codes, weight_range, Tensor(), weight.kept(x), &to);
  }
  const Tensor acc = Tensor::empty(to.codes.shape(), DType::kI32);
  multiply_codes(product, x, weight, weight_range, acc);
  requantize(acc, to);
}

Tensor multiply_wide(const IntegerProduct& product, const ProductInput& x,
                     const PreparedNode& weight, kernels::CodeRange weight_range) {
  const Shape shape = product.output_shape(x.codes.shape(), weight.codes.shape());
  const Tensor high = Tensor::empty(shape, DType::kI32), low = Tensor::empty(shape, DType::kI32);
  const Tensor high_codes = Tensor::empty(x.codes.shape(), DType::kU8);
  const Tensor low_codes = Tensor::empty(x.codes.shape(), DType::kU8);
  ProductInput of_high{.codes = high_codes, .range = {0, 255}};
  ProductInput of_low{.codes = low_codes, .range = {0, 255}};
  split(x, of_high, of_low);
  multiply_codes(product, of_high, weight, weight_range, high);
  multiply_codes(product, of_low, weight, weight_range, low);
  Tensor real = Tensor::empty(shape);
  const std::int64_t channels = weight.codes.dim(0);
  kernels::run(kernels::DequantizeWideSums{.rows = channels == 0 ? 0 : real.size() / channels,
                                           .columns = channels,
                                           .high = high.data<std::int32_t>(),
                                           .low = low.data<std::int32_t>(),
                                           .bias = data_or_null<std::int32_t>(weight.bias),
                                           .product_scale = weight.product_scale.data<float>(),
                                           .out = real.data<float>()});
  return real;
}

}  // namespace steelyard::deploy
