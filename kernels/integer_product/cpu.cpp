#include <algorithm>

#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/integer_product/pair_products.h"
#include "steelyard/kernels/integer_product/terms.h"

namespace steelyard::kernels {
namespace {

template <typename Code>
void multiply(const IntegerConv2d<Code>& k) {
  if (k.backend == Backend::kOneDnn && onednn::has_exact_int8()) {
    onednn::compute(k);
  } else if (k.shape.is_depthwise()) {
    pair_products::compute_depthwise(k);
  } else {
    pair_products::compute(k);
  }
}

}  // namespace

template <typename Code>
void compute(const IntegerMatmul<Code>& k) {
  check_terms("integer_matmul", k.k, k.largest);
  if (k.m == 0 || k.n == 0) return;
  if (k.k == 0) {
    std::fill_n(k.acc, k.m * k.n, 0);
  } else {
    multiply(as_conv(k));
  }
}

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  check_terms("integer_conv2d", s.in_channels_per_group() * s.kernel_h * s.kernel_w, k.largest);
  if (s.output_size() > 0) multiply(k);
}

template struct CpuKernels<IntegerProductKernels>;

}  // namespace steelyard::kernels
