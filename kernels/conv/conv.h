// 2-D convolution, activations NHWC, weights OIHW ([out, in / groups, kernel_h, kernel_w]).
#pragma once

#include <cstdint>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/value_type.h"
#include "steelyard/kernels/watch.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// y[N, OH, OW, O] = conv(x[N, H, W, C], w[O, C/groups, KH, KW]) + bias[O]; bias may be null.
// `products` are the CPU's means (doubles always run on Eigen); a GPU's are its queue's.
template <typename T>
struct Conv2d {
  Conv2dShape shape;
  const T *x, *w, *bias;
  T *y;
  CpuProducts products = default_products();
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds()}; }
};

// grad_x[N, H, W, C] from grad_y[N, OH, OW, O]. Gradient is T, or on the CPU BFloat16 for float,
// where reads_bf16_gradients().
template <typename T, typename Gradient = T>
struct Conv2dBackwardInput {
  Conv2dShape shape;
  const Gradient *grad_y;
  const T *w;
  T *grad_x;
  CpuProducts products = default_products();
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds()}; }
};

// grad_w[O, C/groups, KH, KW]. The gradient of a bias is a kernel of its own, ColumnSums of grad_y,
// which takes 0.3 ms with AVX2 (16 channels, 128 images of 28 x 28). If oneDNN computes it too, its
// product takes 6.2 ms instead of 3.3.
template <typename T>
struct Conv2dBackwardWeight {
  Conv2dShape shape;
  const T *x, *grad_y;
  T *grad_w;
  CpuProducts products = default_products();
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds(), .over_rows = true}; }
};

// Gradients of a quantized layer, whose kernels dequantize operands as they read them; Gradient is
// float or BFloat16, on the CPU where reads_bf16_gradients(), Result too. Of weights w with 1 or
// out_channels scales, on a GPU ...
template <typename Gradient, typename Result = float>
struct CodesBackwardInput {
  Conv2dShape shape;
  const Gradient *grad_y;
  const std::int8_t *w;
  std::int64_t scales;
  const float *scale;
  Result *grad_x;
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds()}; }
};
// ... and of inputs x with one scale and zero point, on both devices. mask (may be null): the
// weights whose gradient passes, the others' is 0. The CPU multiplies by the scale once, at the
// end.
template <typename Code, typename Gradient = float>
struct CodesBackwardWeight {
  Conv2dShape shape;
  const Code *x;
  const float *scale;
  const std::int32_t *zero_point;
  const Gradient *grad_y;
  const std::uint8_t *mask;
  float *grad_w;
  CpuProducts products = default_products();
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds(), .over_rows = true}; }
};

// Whether the gradients of a convolution by codes read the output's in bf16: bf16 products by
// instructions of their own, on a GPU at a queue's precision.
bool reads_bf16_gradients(const Conv2dShape &shape,
                          const CpuProducts &products = default_products());
inline bool reads_bf16_gradients(const CudaQueue &queue, const Conv2dShape &shape) {
  return queue.precision == MatmulPrecision::kBf16 && !shape.is_depthwise();
}

using ConvKernels =
    JoinedKernels<ForFloats<Conv2d, Conv2dBackwardWeight>,
                  KernelList<Conv2dBackwardInput<float>, Conv2dBackwardInput<double>,
                             CodesBackwardWeight<std::int8_t>, CodesBackwardWeight<std::uint8_t>,
                             CodesBackwardWeight<std::int8_t, BFloat16>,
                             CodesBackwardWeight<std::uint8_t, BFloat16>>>;
// Kernels that the CPU has not ...
using ConvOfCodesKernels = KernelList<CodesBackwardInput<float>, CodesBackwardInput<BFloat16>,
                                      CodesBackwardInput<BFloat16, BFloat16>>;
// ... and one that a GPU has not.
using ConvOfBf16Kernels = KernelList<Conv2dBackwardInput<float, BFloat16>>;

}  // namespace steelyard::kernels
