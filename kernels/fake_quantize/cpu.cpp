#include <algorithm>
#include <tuple>
#include <type_traits>

#include "steelyard/kernels/cpu/bf16.h"
#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/row_sums.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/fake_quantize/quant_kernel.h"

namespace steelyard::kernels {

// Emitted in files of their own.
extern template void run(const QuantForward&);
extern template void run(const QuantBackward&);

template <class K>
requires requires(const K& k) { quant_kernel(k); }
void compute(const K& k) { run(quant_kernel(k)); }

#ifdef __AVX512BW__
// As pass_inside(), which says why not by a masked load.
static __m512 passed_sixteen(std::uint32_t bits, const float* grad_y) {
  const __m512i kept = _mm512_movm_epi32(static_cast<__mmask16>(bits));
  return _mm512_and_ps(_mm512_castsi512_ps(kept), _mm512_loadu_ps(grad_y));
}
#endif

// pass_flagged() with a copy in bf16.
static void pass_rounded(std::int64_t n, const std::uint8_t* flags, const float* grad_y,
                         float* grad_x, BFloat16* rounded) {
  std::int64_t i = 0;
#ifdef __AVX512BW__
  for (; i + 32 <= n; i += 32) {
    const __m256i flags32 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(flags + i));
    const std::uint32_t bits = _mm256_test_epi8_mask(flags32, flags32);
    const __m512 low = passed_sixteen(bits, grad_y + i);
    const __m512 high = passed_sixteen(bits >> 16, grad_y + i + 16);
    _mm512_storeu_ps(grad_x + i, low);
    _mm512_storeu_ps(grad_x + i + 16, high);
    _mm512_storeu_si512(rounded + i, to_bf16(high, low));
  }
#endif
  pass_flagged(n - i, flags + i, grad_y + i, grad_x + i);
  round_to_bf16(n - i, grad_x + i, rounded + i);
}

// Chunk by chunk, so that what passes is added while it is in the cache; in the order of
// ColumnSums.
template <typename T, typename Result>
void compute(const ApplyMaskAndSum<T, Result>& k) {
  if (k.channels == 0) return;
  const auto passed = [&k](std::int64_t begin, std::int64_t end) {
    constexpr bool kRounds = !std::is_same_v<T, Result>;
    T* to;
    if constexpr (kRounds) {
      to = line_buffer<T, 0>(end - begin);
    } else {
      to = k.grad_x + begin;
    }
    alignas(kCacheLine) std::uint8_t passes[kBlockElements];
    for (std::int64_t i = begin; i < end; i += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, end - i);
      unpack_flags(k.mask + i / 8, count, passes);
      T* const at = to + (i - begin);
      if constexpr (kRounds) {
        pass_rounded(count, passes, k.grad_y + i, at, k.grad_x + i);
      } else {
        pass_flagged(count, passes, k.grad_y + i, at);
      }
    }
    return std::tuple([values = to - begin](std::int64_t i, std::int64_t) { return values[i]; });
  };
  const KeptVector<double> sums = chunked_row_sums<1>(RowChunks(k.rows, k.channels), passed);
  for (std::int64_t c = 0; c < k.channels; ++c) k.sums[c] = static_cast<T>(sums[c]);
}

template struct CpuKernels<FakeQuantizeKernels>;

}  // namespace steelyard::kernels
