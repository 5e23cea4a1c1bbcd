#include "steelyard/framework/ops/reductions/pool_geometry.h"

#include "steelyard/framework/ops/op_messages.h"

namespace steelyard {

kernels::Conv2dShape pool2d_shape(const char* op, const Shape& x, const Pool2dGeometry& g) {
  if (x.size() != 4) ops::fail(op, "input [N, H, W, C]", shape_string(x));
  if (x[1] < 1 || x[2] < 1) ops::fail(op, "input [N, H, W, C] with pixels", shape_string(x));
  for (std::size_t i = 0; i < 2; ++i) {
    if (g.kernel[i] < 1) ops::fail(op, "kernel of at least 1", ops::pair_text(g.kernel));
    if (g.stride[i] < 1) ops::fail(op, "stride of at least 1", ops::pair_text(g.stride));
    if (g.padding[i] < 0 || 2 * g.padding[i] > g.kernel[i]) {
      ops::fail(op, "padding between 0 and half the kernel " + ops::pair_text(g.kernel),
                ops::pair_text(g.padding));
    }
    if (x[i + 1] + 2 * g.padding[i] < g.kernel[i]) {
      ops::fail(op, "a padded input of at least the kernel " + ops::pair_text(g.kernel),
                "input " + shape_string(x) + " with padding " + ops::pair_text(g.padding));
    }
  }
  return kernels::per_channel({.batch = x[0],
                               .in_h = x[1],
                               .in_w = x[2],
                               .in_channels = x[3],
                               .kernel_h = g.kernel[0],
                               .kernel_w = g.kernel[1],
                               .stride_h = g.stride[0],
                               .stride_w = g.stride[1],
                               .pad_h = g.padding[0],
                               .pad_w = g.padding[1]});
}

}  // namespace steelyard
