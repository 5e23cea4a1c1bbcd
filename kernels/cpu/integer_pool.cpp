#include "kernels/integer_pool.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/requantization.h"

namespace steelyard::kernels {

template <typename Code>
void integer_window_sums(const Pool2dShape& s, const Code* x, const std::int32_t* zero_point,
                         std::int32_t* sums) {
  const std::int64_t out_h = s.out_h();
  const std::int64_t out_w = s.out_w();
  parallel_for(s.batch * out_h, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t image = row / out_h;
      const std::int64_t top = row % out_h * s.stride_h - s.pad_h;
      const std::int64_t h_end = std::min(top + s.kernel_h, s.in_h);
      for (std::int64_t ow = 0; ow < out_w; ++ow) {
        std::int32_t* sum = sums + (row * out_w + ow) * s.channels;
        std::fill(sum, sum + s.channels, 0);
        const std::int64_t left = ow * s.stride_w - s.pad_w;
        const std::int64_t w_end = std::min(left + s.kernel_w, s.in_w);
        for (std::int64_t h = std::max<std::int64_t>(top, 0); h < h_end; ++h) {
          for (std::int64_t w = std::max<std::int64_t>(left, 0); w < w_end; ++w) {
            const Code* pixel = x + ((image * s.in_h + h) * s.in_w + w) * s.channels;
            for (std::int64_t c = 0; c < s.channels; ++c) sum[c] += pixel[c] - *zero_point;
          }
        }
      }
    }
  });
}

template <typename Code>
void requantize_average(std::int64_t n, const Average& average, const std::int32_t* sums,
                        const float* in_scale, const float* scale, const std::int32_t* zero_point,
                        CodeRange range, Code* codes, std::uint8_t* mask) {
  const Affine<float> grid = make_affine(range, *scale, *zero_point);
  const float multiplier = average_multiplier(average, *in_scale, *scale);
  if (mask != nullptr) std::fill(mask, mask + mask_bytes(n), std::uint8_t{0});
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = requantized_code(sums[i], multiplier, grid.zero_point);
    codes[i] = static_cast<Code>(to_integer_code(code, grid));
    if (mask != nullptr && code_is_inside(code, grid)) {
      mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | 1U << (i % 8));
    }
  }
}

void dequantize_average(std::int64_t n, std::int64_t count, const std::int32_t* sums,
                        const float* in_scale, float* out) {
  const float scale = global_average_multiplier(*in_scale, count, 1.0F);
  for (std::int64_t i = 0; i < n; ++i) out[i] = dequantize_sum(sums[i], scale);
}

#define STEELYARD_INSTANTIATE(Code)                                                            \
  template void integer_window_sums(const Pool2dShape&, const Code*, const std::int32_t*,      \
                                    std::int32_t*);                                            \
  template void requantize_average(std::int64_t, const Average&, const std::int32_t*,          \
                                   const float*, const float*, const std::int32_t*, CodeRange, \
                                   Code*, std::uint8_t*);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
