// Integer products whose operands have several scales: of rows, or of groups of a sum's terms.
#pragma once

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// The scales and zero points (null: 0) of [rows, terms]: those of group g of row r are at
// r / shared_rows * row_step + g * group_step.
struct GroupedScales {
  const float* scale;
  const std::int32_t* zero_point;
  std::int64_t row_step, group_step;
  std::int64_t shared_rows;  // consecutive rows that have the same ones

  STEELYARD_HOST_DEVICE std::int64_t at(std::int64_t row, std::int64_t group) const {
    return divide(row, shared_rows) * row_step + group * group_step;
  }
};

// y[r, c] = the sum over groups of terms, in their order, of
//   float(sum_k (x[r, k] - x_zero_point) * (w[c, k] - w_zero_point)) * float(x_scale * w_scale)
// and then of bias[c]: sums of products are exact in int32, every float operation rounds by itself.
// Code is int8_t, uint8_t or int32_t. No product is larger than `largest`. Throws
// std::invalid_argument when a group of the largest could overflow int32.
template <typename Code>
struct GroupedProduct {
  std::int64_t rows, columns, terms, group_size;
  std::int64_t stride;   // of the rows of y
  const Code* x;         // [rows, terms]
  GroupedScales of_x;    // with zero points
  const std::int8_t* w;  // [columns, terms]
  GroupedScales of_w;
  const float* bias;  // [columns] or null
  float* y;
  std::int64_t largest;

  ProductWork work() const {
    return {.multiply_adds = rows * columns * terms, .in_integers = true};
  }
  STEELYARD_HOST_DEVICE std::int64_t groups() const { return divide(terms, group_size); }
  STEELYARD_HOST_DEVICE std::int32_t w_zero(std::int64_t at) const {
    return of_w.zero_point == nullptr ? 0 : of_w.zero_point[at];
  }
  // The definition, an output at a time.
  STEELYARD_HOST_DEVICE void one(std::int64_t row, std::int64_t column) const {
    const Code* codes = x + row * terms;
    const std::int8_t* weights = w + column * terms;
    float sum = 0;
    for (std::int64_t g = 0; g < groups(); ++g, codes += group_size, weights += group_size) {
      const std::int64_t at_x = of_x.at(row, g), at_w = of_w.at(column, g);
      const std::int32_t x_zero = of_x.zero_point[at_x], zero = w_zero(at_w);
      std::int32_t products = 0;
      for (std::int64_t k = 0; k < group_size; ++k) {
        products += (codes[k] - x_zero) * (weights[k] - zero);
      }
      sum += dequantize_sum(products, of_x.scale[at_x] * of_w.scale[at_w]);
    }
    y[row * stride + column] = bias == nullptr ? sum : sum + bias[column];
  }
};

// The windows of one group of channels of a convolution, as rows of codes: patches[N, OH, OW, k], k
// in the order of the weights, (channel, row, column), and padding as the zero point, of which
// there is one, or one for each image. n = elements of patches.
template <typename Code>
struct CodePatches {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  Conv2dShape shape;
  std::int64_t out_h, out_w, group;
  const Code* x;
  const std::int32_t* zero_point;
  std::int64_t zero_points;
  Code* patches;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t taps = shape.kernel_h * shape.kernel_w;
    const std::int64_t channels = divide(shape.in_channels, shape.groups);
    const std::int64_t pixel = divide(i, channels * taps);
    const std::int64_t term = i - pixel * channels * taps;
    const std::int64_t channel = divide(term, taps), tap = term - channel * taps;
    const std::int64_t tap_h = divide(tap, shape.kernel_w), tap_w = tap - tap_h * shape.kernel_w;
    const std::int64_t line = divide(pixel, out_w), image = divide(line, out_h);
    const std::int64_t h =
        (line - image * out_h) * shape.stride_h - shape.pad_h + tap_h * shape.dilation_h;
    const std::int64_t w =
        (pixel - line * out_w) * shape.stride_w - shape.pad_w + tap_w * shape.dilation_w;
    const bool inside = h >= 0 && h < shape.in_h && w >= 0 && w < shape.in_w;
    patches[i] = inside ? x[((image * shape.in_h + h) * shape.in_w + w) * shape.in_channels +
                            group * channels + channel]
                        : static_cast<Code>(zero_point[zero_points == 1 ? 0 : image]);
  }
};

using IntegerGroupsKernels =
    JoinedKernels<ForTypes<GroupedProduct, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<CodePatches, std::int8_t, std::uint8_t, std::int32_t>>;

}  // namespace steelyard::kernels
