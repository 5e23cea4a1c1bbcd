// The products that quantized layers are made of, in integers forward and in float backward.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/autograd.h"
#include "steelyard/framework/ops/conv2d.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::qat {

// A linear map of activations by weights [channels, ...], those of an output channel side by side:
// what quantized layers share.
class Product {
 public:
  virtual ~Product() = default;
  virtual std::string name() const = 0;
  // The weights of a parameter, which may have another layout. The same function makes a parameter
  // of weights; codes go along.
  virtual Variable turned(const Variable& parameter) const { return parameter; }
  virtual Attributes attributes() const { return {}; }
  virtual Shape output_shape(const Shape& x, const Shape& weight) const = 0;
  // Number of elements that dynamic scales treat as a row: the features of a linear map, a whole
  // sample of a convolution.
  virtual std::int64_t row_size(const Shape& x) const { return x.empty() ? 0 : x.back(); }
  // Groups of channels that are multiplied each by itself.
  virtual std::int64_t groups() const { return 1; }
  // acc i32 of output_shape = exact sums of (x - zero_point) * w, x having codes of 8 bits and the
  // weights' codes being within weight_range.
  virtual void integer(const QuantizedValue& x, const Tensor& weight_codes,
                       kernels::CodeRange weight_range, const Tensor& acc) const = 0;
  // y f32 of output_shape = sums of groups of such products, each times its scales, and bias, which
  // may be undefined (kernels/integer_groups/integer_groups.h).
  virtual void grouped(const QuantizedValue& x, const WeightCodes& weight, const Tensor& bias,
                       const Tensor& y) const = 0;
  virtual void grad_input(const Tensor& grad, const WeightCodes& weight,
                          const Tensor& grad_x) const = 0;
  // grad_weight is 0 where weight_mask, which may be undefined, has no one; grad_bias may be
  // undefined.
  virtual void grad_weight(const QuantizedValue& x, const Tensor& grad, const Tensor& weight_mask,
                           const Tensor& grad_weight, const Tensor& grad_bias) const = 0;
  // The same map as a float operation of the engine.
  virtual Variable float_forward(const Variable& x, const Variable& weight,
                                 const Variable& bias) const = 0;
};

// x [..., in] times weight [out, in].
std::shared_ptr<const Product> linear_product();
// x [N, H, W, C] with weight [O, C/groups, KH, KW].
std::shared_ptr<const Product> conv2d_product(const Conv2dGeometry& geometry);

}  // namespace steelyard::qat
