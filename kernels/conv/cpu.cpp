#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/conv/depthwise.h"
#include "steelyard/kernels/conv/eigen.h"
#include "steelyard/kernels/conv/onednn_limits.h"
#include "steelyard/kernels/conv/outer_products.h"
#include "steelyard/kernels/conv/outer_sums.h"
#include "steelyard/kernels/cpu/bf16.h"
#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/rounded_operands.h"
#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

// The kernel, with the library and precision that its shape allows.
template <class K>
K for_shape(K k) {
  if (k.shape.is_depthwise()) k.products.precision = MatmulPrecision::kFloat32;
  if (is_overrun_by_onednn(k.shape)) k.products.backend = Backend::kEigen;
  return k;
}

// oneDNN 2.6 treats the gradient of up to 4 input channels as that of 16: from 64 outputs on, Eigen
// takes .5 to .7 of its time.
bool is_faster_by_eigen(const Conv2dShape& s, const CpuProducts& products) {
  return products.precision == MatmulPrecision::kFloat32 && s.groups == 1 && s.in_channels <= 4 &&
         s.out_channels >= 64;
}

// Whether weight gradients are this family's own (Eigen is the reference). oneDNN 2.6 takes 1.1 to
// 2 times as long on AVX2 and in bf16, and 2 to 5 times for depthwise convolutions whose channels
// do not fill its vectors.
bool is_own_weight_gradient(const Conv2dShape& s, const CpuProducts& products) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  constexpr bool kAlways = true;
#else
  constexpr bool kAlways = false;
#endif
  if (products.backend == Backend::kEigen) return false;
  if (kAlways) return true;
  if (s.is_depthwise()) return s.in_channels % FloatOperands::kLanes != 0;
  return reads_bf16_gradients(s, products);
}

// Computes a weight gradient by this family's own code, for an input of codes or floats.
template <class K>
void compute_own_weight_gradient(const K& k) {
  if constexpr (requires { depthwise::compute(k); }) {
    if (k.shape.is_depthwise()) return depthwise::compute(k);
  }
  outer_products::compute(k);
}

// Rounds the gradient itself, so that oneDNN needs no reorder of it.
bool computes_in_bf16(const Conv2dBackwardInput<float>& k) {
  if (!reads_bf16_gradients(k.shape, k.products)) return false;
  const std::int64_t n = k.shape.output_size();
  auto* const rounded = line_buffer<BFloat16, 0>(n);
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    round_to_bf16(end - begin, k.grad_y + begin, rounded + begin);
  });
  onednn::compute(Conv2dBackwardInput<float, BFloat16>{k.shape, rounded, k.w, k.grad_x});
  return true;
}

}  // namespace

static void compute(const Conv2dBackwardInput<float, BFloat16>& k) {
  if (k.shape.input_size() > 0) onednn::compute(k);
}

template <typename T>
void compute(const Conv2d<T>& given) {
  Conv2d<T> k = for_shape(given);
  if (k.shape.output_size() == 0) return;
  const RoundedOperands rounded(k.products, k.x, k.shape.input_size(), k.w, k.shape.weight_size());
  if (!onednn::computes(k)) eigen::compute(k);
}

template <typename T>
void compute(const Conv2dBackwardInput<T>& given) {
  Conv2dBackwardInput<T> k = for_shape(given);
  if (k.shape.input_size() == 0) return;
  if (is_faster_by_eigen(k.shape, k.products)) k.products.backend = Backend::kEigen;
  if constexpr (std::is_same_v<T, float>) {
    if (computes_in_bf16(k)) return;
  }
  const RoundedOperands rounded(k.products, k.grad_y, k.shape.output_size(), k.w,
                                k.shape.weight_size());
  if (!onednn::computes(k)) eigen::compute(k);
}

template <typename T>
void compute(const Conv2dBackwardWeight<T>& given) {
  Conv2dBackwardWeight<T> k = for_shape(given);
  const Conv2dShape& s = k.shape;
  if (s.output_size() == 0) {
    std::fill_n(k.grad_w, s.weight_size(), T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (is_own_weight_gradient(s, k.products)) return compute_own_weight_gradient(k);
  }
  const RoundedOperands rounded(k.products, k.x, s.input_size(), k.grad_y, s.output_size());
  if (!onednn::computes(k)) eigen::compute(k);
}

template <typename Code, typename Gradient>
void compute(const CodesBackwardWeight<Code, Gradient>& k) {
  if (k.shape.output_size() == 0 || k.shape.weight_size() == 0) {
    std::fill_n(k.grad_w, k.shape.weight_size(), 0.0F);
  } else {
    compute_own_weight_gradient(k);
  }
}

template struct CpuKernels<ConvKernels>;
template struct CpuKernels<ConvOfBf16Kernels>;

}  // namespace steelyard::kernels
