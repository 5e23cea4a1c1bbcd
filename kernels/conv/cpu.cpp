#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/conv/eigen.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/rounded_operands.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

// The kernel, with the library and precision that its shape allows.
template <class K>
K for_shape(K k) {
  if (k.shape.is_depthwise()) k.products.precision = MatmulPrecision::kFloat32;
  return k;
}

}  // namespace

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
    if (k.grad_bias != nullptr) std::fill_n(k.grad_bias, s.out_channels, T(0));
    return;
  }
  // oneDNN adds the bias's gradient from its own operands, which must not be rounded.
  const bool has_bias_of_its_own = std::is_same_v<T, float> &&
                                   k.products.backend == Backend::kOneDnn &&
                                   k.products.precision == MatmulPrecision::kFloat32;
  if (!has_bias_of_its_own) k.grad_bias = nullptr;
  const RoundedOperands rounded(k.products, k.x, s.input_size(), k.grad_y, s.output_size());
  if (!onednn::computes(k)) eigen::compute(k);
  if (has_bias_of_its_own || given.grad_bias == nullptr) return;
  run(ColumnSums<T>{.rows = s.batch * s.out_h() * s.out_w(),
                    .channels = s.out_channels,
                    .x = given.grad_y,
                    .sums = given.grad_bias});
}

template struct CpuKernels<ConvKernels>;

}  // namespace steelyard::kernels
