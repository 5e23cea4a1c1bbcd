// The products that quantized layers are made of, in integers forward and in float backward.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// From the int32 accumulators of a product to codes: its bias, requantization and a fused
// activation.
struct Requantization {
  kernels::Requantize op;
  Tensor bias;           // i32 codes of the products' scale; undefined for none
  Tensor product_scale;  // f32 [channels]: float(s_x * s_w)
  // Of an output in fixed point: its factors are found from the scales themselves, f32 [1] and [1]
  // or [channels].
  Tensor input_scale{}, weight_scale{};
  QuantizedValue output;  // its codes are written
  Tensor mask;            // written unless undefined

  const std::int32_t* bias_data() const {
    return bias.defined() ? bias.data<std::int32_t>() : nullptr;
  }
  template <typename Code>
  kernels::RequantizeAccumulators<Code> kernel(const Tensor& acc) const {
    return {.op = op,
            .acc = acc.data<std::int32_t>(),
            .bias = bias_data(),
            .product_scale = product_scale.data<float>(),
            .scale = output.qparams.scale.data<float>(),
            .zero_point = output.qparams.zero_point.data<std::int32_t>(),
            .range = output.range,
            .codes = output.codes.data<Code>(),
            .mask = mask.defined() ? mask.data<std::uint8_t>() : nullptr};
  }
};

// Rounds as the output says.
void requantize(const Tensor& acc, const Requantization& to);

// A linear map of activations by weights [channels, ...], those of an output channel side by side:
// what quantized layers share.
class Product {
 public:
  virtual ~Product() = default;
  virtual std::string name() const = 0;
  // The weights [channels, ...] of a parameter, which may have another layout. The function is its
  // own inverse: of such weights it gives the parameter. Codes go along.
  virtual Variable by_output_channel(const Variable& parameter) const { return parameter; }
  virtual Shape output_shape(const Shape& x, const Shape& weight) const = 0;
  // Number of elements that dynamic scales treat as a row: the features of a linear map, a whole
  // sample of a convolution.
  virtual std::int64_t row_size(const Shape& x) const { return x.empty() ? 0 : x.back(); }
  // Groups of channels that are multiplied each by itself.
  virtual std::int64_t groups() const { return 1; }
  // acc i32 of output_shape = exact sums of (x - zero_point) * w, x having codes of 8 bits.
  void integer(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc) const {
    multiply(x, weight, acc, nullptr);
  }
  // The codes and mask of `to` from such sums, for which acc is memory that need not be written.
  void requantized(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc,
                   const Requantization& to) const {
    multiply(x, weight, acc, &to);
  }
  // y f32 of output_shape = sums of groups of such products, each times its scales, and bias, which
  // may be undefined (kernels/integer_groups/integer_groups.h).
  virtual void grouped(const QuantizedValue& x, const WeightCodes& weight, const Tensor& bias,
                       const Tensor& y) const = 0;
  // Whether the gradients of such operands, the codes of the weights having these parameters, read
  // grad in bf16, too; else it is f32.
  virtual bool reads_bf16_gradients(const QuantizedValue& x, const Shape& weight,
                                    const QParamTensors& weight_qparams) const {
    (void)x, (void)weight, (void)weight_qparams;
    return false;
  }
  // grad_x is f32, on a GPU also bf16 of a grad in bf16.
  virtual void grad_input(const Tensor& grad, const WeightCodes& weight,
                          const Tensor& grad_x) const = 0;
  // grad_weight is 0 where weight_mask, which may be undefined, has no one.
  virtual void grad_weight(const QuantizedValue& x, const Tensor& grad, const Tensor& weight_mask,
                           const Tensor& grad_weight) const = 0;
  // The product as a float operation of the engine.
  virtual Variable float_forward(const Variable& x, const Variable& weight,
                                 const Variable& bias) const = 0;

 private:
  // integer(), or requantized() where `to` is not null.
  virtual void multiply(const QuantizedValue& x, const WeightCodes& weight, const Tensor& acc,
                        const Requantization* to) const = 0;
};

// x [..., in] times weight [out, in].
std::shared_ptr<const Product> linear_product();
// x [N, H, W, C] with weight [O, C/groups, KH, KW].
std::shared_ptr<const Product> conv2d_product(const Conv2dGeometry& geometry);
// A convolution of images of one row, with a parameter [O, C/groups, K].
std::shared_ptr<const Product> conv1d_product(const Conv2dGeometry& geometry);

}  // namespace steelyard::qat
