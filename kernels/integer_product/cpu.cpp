#include <algorithm>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/integer_product/terms.h"
#include "steelyard/kernels/integer_product/tiled_products.h"
#include "steelyard/kernels/requantize/requantizer.h"

namespace steelyard::kernels {
namespace {

template <typename Code>
const IntegerConv2d<Code>& as_conv(const IntegerConv2d<Code>& k) {
  return k;
}

template <typename Code>
void check(const IntegerMatmul<Code>& k) {
  check_terms("integer_matmul", k.k, k.largest);
}
template <typename Code>
void check(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  check_terms("integer_conv2d", s.in_channels_per_group() * s.kernel_h * s.kernel_w, k.largest);
}

template <class Product>
void multiply(const Product& k) {
  check(k);
  const auto& conv = as_conv(k);
  const Conv2dShape& shape = conv.shape;
  const bool fills = conv.kept != nullptr && conv.kept->form == KeptWeights::Form::kNone;
  if (shape.output_size() == 0 && (!fills || shape.weight_size() == 0)) return;
  if (shape.weight_size() == 0) {
    std::fill_n(k.acc, shape.output_size(), 0);
  } else {
    tiled_products::compute(conv);
  }
}

}  // namespace

template <typename Code>
void compute(const IntegerMatmul<Code>& k) {
  multiply(k);
}
template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  multiply(k);
}

template <class Product, typename Out>
void compute(const RequantizedProduct<Product, Out>& k) {
  const auto& conv = as_conv(k.product);
  if (conv.shape.output_size() == 0 || conv.shape.weight_size() == 0) {
    multiply(k.product);
    return requantize_all(k.to);
  }
  check(k.product);
  tiled_products::compute(conv, Requantizer<Out>(k.to));
}

template struct CpuKernels<IntegerProductKernels>;

}  // namespace steelyard::kernels
