// The integer products of linear maps, on the exact kernels that training runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "steelyard/framework/ops/products/conv_geometry.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantize.h"

namespace steelyard::deploy {

// The codes of an input with their quantization.
struct ProductInput {
  const Tensor& codes;
  float scale = 1;
  std::int32_t zero_point = 0;
  kernels::CodeRange range;

  bool wide() const { return codes.dtype() == DType::kI32; }
};

class IntegerProduct;

// Weights in the order in which products read them, put so by the first one.
struct Packing {
  std::once_flag once;
  kernels::KeptWeights weights;
  Tensor codes;  // until then
};

// What is made of a node once: weights as products take them, or the table of an operation without.
struct PreparedNode {
  Tensor codes;                         // i8, the shape of the weight; with `lean` without elements
  Tensor scale;                         // f32, one per output channel or group of its weights
  Tensor zero_point;                    // i32, one per scale; undefined where all are 0
  kernels::CodeRange range{-128, 127};  // that the codes of groups are in
  // What a product with a scale for each channel takes, [outputs] each; else undefined.
  Tensor product_scale;  // f32: float(s_x * s_w)
  Tensor bias;           // i32 codes of that scale; undefined without a bias
  Tensor real;           // f32, of a product in float, for which all else is undefined
  Tensor table;          // byte_table() of a node without weights, likewise
  // For products with inputs of one zero point; null for others.
  std::shared_ptr<Packing> packing = {};
  bool lean = false;                                   // once they are packed, nobody needs `codes`
  std::shared_ptr<const IntegerProduct> product = {};  // of the node; null of one in float

  // Packs the weights for products with inputs as x; null where that is not so. Several threads may
  // ask.
  kernels::KeptWeights* kept(const ProductInput& x) const;
};

// From the int32 sums of a product to codes: their bias, requantization and a fused activation.
struct OutputRule {
  kernels::Requantize op;
  const std::int32_t* bias;    // may be null
  const float* product_scale;  // as PreparedNode has it
  float scale;
  std::int32_t zero_point;
  kernels::CodeRange range;
  const Tensor& codes;  // are written

  template <typename Code>
  kernels::RequantizeAccumulators<Code> kernel(const Tensor& acc) const {
    return {.op = op,
            .acc = data_or_null<std::int32_t>(acc),
            .bias = bias,
            .product_scale = product_scale,
            .scale = &scale,
            .zero_point = &zero_point,
            .range = range,
            .codes = codes.data<Code>(),
            .mask = nullptr};
  }
};

// A linear map of codes by weights [channels, ...], those of an output channel side by side.
class IntegerProduct {
 public:
  virtual ~IntegerProduct() = default;
  virtual Shape output_shape(const Shape& x, const Shape& weight) const = 0;
  // Groups of channels that are multiplied each by itself.
  virtual std::int64_t groups() const { return 1; }
  // acc i32 of output_shape = exact sums of (x - zero_point) * w, x having codes of 8 bits and the
  // weights' codes being within weight_range. `kept` may be null. If `to` is not, its codes are
  // written, and acc is undefined.
  virtual void multiply(const ProductInput& x, const Tensor& weight_codes,
                        kernels::CodeRange weight_range, const Tensor& acc,
                        kernels::KeptWeights* kept, const OutputRule* to = nullptr) const = 0;
  // y f32 of output_shape = sums of groups of such products, each times its scales, and bias, which
  // may be undefined (kernels/integer_groups/integer_groups.h).
  virtual void grouped(const ProductInput& x, const PreparedNode& weight, const Tensor& bias,
                       const Tensor& y) const = 0;
};

// x [..., in] times weight [out, in].
std::shared_ptr<const IntegerProduct> linear_product();
// x [N, H, W, C] with weight [O, C/groups, KH, KW].
std::shared_ptr<const IntegerProduct> conv2d_product(const Conv2dGeometry& geometry);
std::shared_ptr<const IntegerProduct> conv_transpose2d_product(
    const ConvTranspose2dGeometry& geometry);

// acc i32 of the product's output shape = exact sums of (x - zero point) * (w - zero point), the
// weights' codes being within weight_range.
void multiply_codes(const IntegerProduct& product, const ProductInput& x,
                    const PreparedNode& weight, kernels::CodeRange weight_range, const Tensor& acc);
// The codes of `to` from those sums.
void multiply_to_codes(const IntegerProduct& product, const ProductInput& x,
                       const PreparedNode& weight, kernels::CodeRange weight_range,
                       const OutputRule& to);

// f32 values float(sum of (x - z_x) * (w - z_w) + bias) * product_scale of wide codes x; the sums
// are exact.
Tensor multiply_wide(const IntegerProduct& product, const ProductInput& x,
                     const PreparedNode& weight, kernels::CodeRange weight_range);

}  // namespace steelyard::deploy
