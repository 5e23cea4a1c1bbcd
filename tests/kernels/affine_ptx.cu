// Kernels that use every function of kernels/affine.h and kernels/multiples.h; only their PTX is
// looked at: the three fused multiply-adds that the quantized sum names, and the three of a quick
// multiple, in float and in double.
#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/multiples.h"

namespace steelyard::kernels {

template <typename T>
__global__ void affine_values(const T* x, const T* scale, const std::int32_t* zero_point,
                              CodeRange range, T* y, T* passed, std::int32_t* codes) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const CodeGrid<T> p = make_code_grid(range, scale[i], zero_point[i]);
  y[i] = fake_quantize_value(x[i], p);
  passed[i] = is_inside(x[i], p) ? y[i] : T(0);
  const Multiples<T> multiples(p);
  const T quick = multiples.quick(x[i]);
  if (multiples.is_sure(x[i], quick)) passed[i] += quick;
  codes[2 * i] = quantize_value(x[i], p);
  codes[2 * i + 1] = quantize_bias(x[i], p.scale);
}

__global__ void requantized_values(const std::int32_t* sums, const float* in_scale, float scale,
                                   std::int64_t count, CodeRange range, std::int32_t* codes) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const CodeGrid<float> out = make_code_grid(range, scale, 3);
  const float multiplier = requantize_multiplier(in_scale[i], scale);
  codes[3 * i] = to_integer_code(requantized_code(sums[i], multiplier, out.zero_point), out);
  const float average = global_average_multiplier(in_scale[i], count, scale) +
                        window_average_multiplier(in_scale[i], count, scale);
  codes[3 * i + 1] = to_integer_code(requantized_code(sums[i], average, out.zero_point), out);
  const AddRequantizer add = make_add_requantizer(
      {in_scale[i], 5, 0, 255}, {in_scale[i + 1], 7, -128, 127}, {scale, 3, 0, 255});
  const float sum =
      requantized_add_code(static_cast<float>(sums[i]), static_cast<float>(sums[i + 1]), add);
  codes[3 * i + 2] = to_integer_code(sum, out);
}

template __global__ void affine_values(const float*, const float*, const std::int32_t*, CodeRange,
                                       float*, float*, std::int32_t*);
template __global__ void affine_values(const double*, const double*, const std::int32_t*, CodeRange,
                                       double*, double*, std::int32_t*);

}  // namespace steelyard::kernels
