#include "steelyard/framework/ops/products/conv_geometry.h"

#include <algorithm>
#include <string>

#include "steelyard/framework/ops/op_messages.h"

namespace steelyard {
namespace {

void require_geometry(const Conv2dGeometry& g) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // sizes then fit 64 bits
  for (std::size_t i = 0; i < 2; ++i) {
    if (std::max({g.stride[i], g.padding[i], g.dilation[i]}) > kMost) {
      ops::fail("conv2d", "stride, padding and dilation of at most " + std::to_string(kMost),
                ops::pair_text(g.stride) + ", " + ops::pair_text(g.padding) + " and " +
                    ops::pair_text(g.dilation));
    }
    if (g.stride[i] < 1) ops::fail("conv2d", "stride of at least 1", ops::pair_text(g.stride));
    if (g.padding[i] < 0) ops::fail("conv2d", "padding of at least 0", ops::pair_text(g.padding));
    if (g.dilation[i] < 1) {
      ops::fail("conv2d", "dilation of at least 1", ops::pair_text(g.dilation));
    }
  }
  if (g.groups < 1) ops::fail("conv2d", "groups of at least 1", std::to_string(g.groups));
}

void require_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (x[3] % groups != 0 || w[0] % groups != 0) {
    ops::fail("conv2d",
              "groups that divide C = " + std::to_string(x[3]) + " and O = " + std::to_string(w[0]),
              std::to_string(groups));
  }
  if (w[1] != x[3] / groups) {
    ops::fail("conv2d",
              "weight [O, C/groups, KH, KW] with C/groups = " + std::to_string(x[3] / groups),
              shape_string(w));
  }
}

void require_window_fits(const kernels::Conv2dShape& s) {
  const std::int64_t reach_h = s.dilation_h * (s.kernel_h - 1) + 1;
  const std::int64_t reach_w = s.dilation_w * (s.kernel_w - 1) + 1;
  if (s.in_h + 2 * s.pad_h < reach_h || s.in_w + 2 * s.pad_w < reach_w) {
    ops::fail("conv2d",
              "a padded input of at least " + std::to_string(reach_h) + "x" +
                  std::to_string(reach_w) + " (the dilated kernel)",
              std::to_string(s.in_h + 2 * s.pad_h) + "x" + std::to_string(s.in_w + 2 * s.pad_w));
  }
}

}  // namespace

kernels::Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dGeometry& geometry) {
  if (x.size() != 4) ops::fail("conv2d", "input [N, H, W, C]", shape_string(x));
  if (w.size() != 4 || *std::min_element(w.begin(), w.end()) < 1) {
    ops::fail("conv2d", "weight [O, C/groups, KH, KW]", shape_string(w));
  }
  require_geometry(geometry);
  require_channels(x, w, geometry.groups);
  const kernels::Conv2dShape shape{.batch = x[0],
                                   .in_h = x[1],
                                   .in_w = x[2],
                                   .in_channels = x[3],
                                   .out_channels = w[0],
                                   .kernel_h = w[2],
                                   .kernel_w = w[3],
                                   .stride_h = geometry.stride[0],
                                   .stride_w = geometry.stride[1],
                                   .pad_h = geometry.padding[0],
                                   .pad_w = geometry.padding[1],
                                   .dilation_h = geometry.dilation[0],
                                   .dilation_w = geometry.dilation[1],
                                   .groups = geometry.groups};
  require_window_fits(shape);
  return shape;
}

kernels::Conv2dShape conv_transpose2d_shape(const Shape& x, const Shape& w,
                                            const ConvTranspose2dGeometry& geometry) {
  constexpr const char* kOp = "conv_transpose2d";
  const Conv2dGeometry& g = geometry.conv;
  if (x.size() != 4) ops::fail(kOp, "input [N, H, W, C]", shape_string(x));
  if (w.size() != 4 || w[0] != x[3]) {
    ops::fail(kOp, "weight [C, O/groups, KH, KW] with C = " + std::to_string(x[3]),
              shape_string(w));
  }
  if (g.groups < 1 || x[3] % g.groups != 0) {
    ops::fail(kOp, "groups that divide C = " + std::to_string(x[3]), std::to_string(g.groups));
  }
  Shape y{x[0], 0, 0, w[1] * g.groups};
  for (std::size_t i = 0; i < 2; ++i) {
    if (g.stride[i] < 1) ops::fail(kOp, "stride of at least 1", ops::pair_text(g.stride));
    if (geometry.output_padding[i] < 0 || geometry.output_padding[i] >= g.stride[i]) {
      ops::fail(kOp, "output_padding of at least 0 and less than the stride",
                ops::pair_text(geometry.output_padding));
    }
    y[i + 1] = (x[i + 1] - 1) * g.stride[i] - 2 * g.padding[i] + g.dilation[i] * (w[i + 2] - 1) +
               geometry.output_padding[i] + 1;
    if (y[i + 1] < 1) ops::fail(kOp, "an output with pixels", shape_string(y));
  }
  return conv2d_shape(y, w, g);
}

kernels::TransposedConv transposed_conv(const Shape& x, const Shape& weight,
                                        const ConvTranspose2dGeometry& geometry) {
  const Conv2dGeometry& g = geometry.conv;
  const Shape parameter{weight[1] * g.groups, weight[0] / g.groups, weight[2], weight[3]};
  const kernels::Conv2dShape of = conv_transpose2d_shape(x, parameter, geometry);
  return {.batch = of.batch,
          .in_channels = of.out_channels,
          .out_channels = of.in_channels,
          .groups = of.groups,
          .height = {x[1], of.in_h, of.kernel_h, of.stride_h, of.pad_h, of.dilation_h},
          .width = {x[2], of.in_w, of.kernel_w, of.stride_w, of.pad_w, of.dilation_w}};
}

}  // namespace steelyard
