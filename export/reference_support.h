// What the reference operations share: access to codes, output grids and windows over images.
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/export/reference_ops.h"

namespace steelyard::deploy {

// Code i of a tensor of codes.
inline std::int32_t code_at(const Tensor& codes, std::int64_t i) {
  return codes.dtype() == DType::kI8 ? codes.data<std::int8_t>()[i] : codes.data<std::uint8_t>()[i];
}

inline void set_code(const Tensor& codes, std::int64_t i, std::int32_t code) {
  if (codes.dtype() == DType::kI8) {
    codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(code);
  } else {
    codes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(code);
  }
}

// out[i] = f(i) for every element, floats or codes.
template <typename F>
void fill_floats(const Tensor& out, const F& f) {
  float* y = out.data<float>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < out.size(); ++i) y[i] = f(i);
}
template <typename F>
void fill_codes(const Tensor& out, const F& f) {
#pragma omp parallel for
  for (std::int64_t i = 0; i < out.size(); ++i) set_code(out, i, f(i));
}

inline kernels::Affine<float> grid_of(const Quantization& q) {
  return kernels::make_affine(q.range, q.scale, q.zero_point);
}

// The output's grid, narrowed to the codes that the fused activation leaves.
inline kernels::Affine<float> output_grid(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  return kernels::make_affine(
      kernels::activation_code_range(op.node.activation, q.range, q.scale, q.zero_point), q.scale,
      q.zero_point);
}

// The windows of an operation over images: rows of `patch` elements, one for each output pixel, and
// padding that is left at zero.
struct Windows {
  std::int64_t in_h, in_w, channels;
  std::int64_t out_h, out_w;
  std::array<std::int64_t, 2> kernel, stride, padding, dilation;

  // Calls f(position of the tap in the kernel, index of the pixel in the image) for every tap of
  // the output pixel (oh, ow) that lies inside the image.
  template <typename F>
  void for_each_tap(std::int64_t oh, std::int64_t ow, const F& f) const {
    for (std::int64_t kh = 0; kh < kernel[0]; ++kh) {
      for (std::int64_t kw = 0; kw < kernel[1]; ++kw) {
        const std::int64_t h = oh * stride[0] - padding[0] + kh * dilation[0];
        const std::int64_t w = ow * stride[1] - padding[1] + kw * dilation[1];
        if (h < 0 || h >= in_h || w < 0 || w >= in_w) continue;
        f(kh * kernel[1] + kw, h * in_w + w);
      }
    }
  }
};

inline Windows windows_of(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  const Shape& out = op.output_value().shape;
  Windows w{.in_h = in[0],
            .in_w = in[1],
            .channels = in[2],
            .out_h = 1,
            .out_w = 1,
            .kernel = {},
            .stride = {1, 1},
            .padding = {0, 0},
            .dilation = {1, 1}};
  if (op.node.op == Op::kGlobalAvgPool) {
    w.kernel = {in[0], in[1]};
    return w;
  }
  w.out_h = out[0];
  w.out_w = out[1];
  if (op.node.op == Op::kConv2d) {
    const Shape& weight = op.node.weights->weight.shape();
    w.kernel = {weight[2], weight[3]};
    w.stride = op.node.conv.stride;
    w.padding = op.node.conv.padding;
    w.dilation = op.node.conv.dilation;
  } else {
    w.kernel = op.node.pool.kernel;
    w.stride = op.node.pool.stride;
    w.padding = op.node.pool.padding;
  }
  return w;
}

}  // namespace steelyard::deploy
