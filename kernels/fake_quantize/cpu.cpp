#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/blocks.h"
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

// Chunk by chunk, so that what passes is added while it is in the cache; in the order of
// ColumnSums.
template <typename T>
void compute(const ApplyMaskAndSum<T>& k) {
  if (k.channels == 0) return;
  const auto apply_mask = [&k](std::int64_t begin, std::int64_t end) {
    alignas(kCacheLine) std::uint8_t passes[kBlockElements];
    for (; begin < end; begin += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, end - begin);
      unpack_flags(k.mask + begin / 8, count, passes);
      pass_flagged(count, passes, k.grad_y + begin, k.grad_x + begin);
    }
  };
  const auto passed = [x = k.grad_x](std::int64_t i, std::int64_t) { return x[i]; };
  const std::vector<double> sums =
      prepared_row_sums(RowChunks(k.rows, k.channels), apply_mask, passed);
  for (std::int64_t c = 0; c < k.channels; ++c) k.sums[c] = static_cast<T>(sums[c]);
}

template struct CpuKernels<FakeQuantizeKernels>;

}  // namespace steelyard::kernels
