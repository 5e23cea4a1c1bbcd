#include "steelyard/kernels/integer_pool/integer_pool.h"

#include <algorithm>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/requantize/formulas.h"

namespace steelyard::kernels {

template <typename Code>
void compute(const IntegerWindowSums<Code>& k) {
  const Pool2dShape& s = k.shape;
  const std::int64_t out_h = s.out_h();
  const std::int64_t out_w = s.out_w();
  parallel_for(s.batch * out_h, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t image = row / out_h;
      const std::int64_t top = row % out_h * s.stride_h - s.pad_h;
      const std::int64_t h_end = std::min(top + s.kernel_h, s.in_h);
      for (std::int64_t ow = 0; ow < out_w; ++ow) {
        std::int32_t* sum = k.sums + (row * out_w + ow) * s.channels;
        std::fill(sum, sum + s.channels, 0);
        const std::int64_t left = ow * s.stride_w - s.pad_w;
        const std::int64_t w_end = std::min(left + s.kernel_w, s.in_w);
        for (std::int64_t h = std::max<std::int64_t>(top, 0); h < h_end; ++h) {
          for (std::int64_t w = std::max<std::int64_t>(left, 0); w < w_end; ++w) {
            const Code* pixel = k.x + ((image * s.in_h + h) * s.in_w + w) * s.channels;
            for (std::int64_t c = 0; c < s.channels; ++c) sum[c] += pixel[c] - *k.zero_point;
          }
        }
      }
    }
  });
}

template <typename Code>
void compute(const RequantizeAverage<Code>& k) {
  const Affine<float> grid = make_affine(k.range, *k.scale, *k.zero_point);
  const float multiplier = average_multiplier(k.average, *k.in_scale, *k.scale);
  if (k.mask != nullptr) std::fill_n(k.mask, mask_bytes(k.n), std::uint8_t{0});
  for (std::int64_t i = 0; i < k.n; ++i) {
    const float code = requantized_code(k.sums[i], multiplier, grid.zero_point);
    k.codes[i] = static_cast<Code>(to_integer_code(code, grid));
    if (k.mask != nullptr && code_is_inside(code, grid)) {
      k.mask[i / 8] = static_cast<std::uint8_t>(k.mask[i / 8] | 1U << (i % 8));
    }
  }
}

template struct CpuKernels<IntegerPoolKernels>;

}  // namespace steelyard::kernels
