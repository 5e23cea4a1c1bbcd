#include "kernels/integer_pool.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/fake_quantize.h"

namespace steelyard::kernels {

template <typename Code>
void integer_window_sums(const Pool2dShape& s, const Code* x, std::int32_t zero_point,
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
            for (std::int64_t c = 0; c < s.channels; ++c) sum[c] += pixel[c] - zero_point;
          }
        }
      }
    }
  });
}

template <typename Code>
void requantize_average(std::int64_t n, const AverageRequantize& op, const std::int32_t* sums,
                        Code* codes, std::uint8_t* mask) {
  const Affine<float> grid = make_affine(op.range, op.scale, op.zero_point);
  if (mask != nullptr) std::fill(mask, mask + mask_bytes(n), std::uint8_t{0});
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = requantized_code(sums[i], op.multiplier, grid.zero_point);
    codes[i] = static_cast<Code>(to_integer_code(code, grid));
    if (mask != nullptr && code_is_inside(code, grid)) {
      mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | 1U << (i % 8));
    }
  }
}

void dequantize_average(std::int64_t n, float in_scale, std::int64_t count,
                        const std::int32_t* sums, float* out) {
  const float scale = global_average_multiplier(in_scale, count, 1.0F);
  for (std::int64_t i = 0; i < n; ++i) out[i] = dequantize_sum(sums[i], scale);
}

template void integer_window_sums(const Pool2dShape&, const std::int8_t*, std::int32_t,
                                  std::int32_t*);
template void integer_window_sums(const Pool2dShape&, const std::uint8_t*, std::int32_t,
                                  std::int32_t*);
template void requantize_average(std::int64_t, const AverageRequantize&, const std::int32_t*,
                                 std::int8_t*, std::uint8_t*);
template void requantize_average(std::int64_t, const AverageRequantize&, const std::int32_t*,
                                 std::uint8_t*, std::uint8_t*);

}  // namespace steelyard::kernels
