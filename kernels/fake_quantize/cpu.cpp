#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/quant_cpu.h"
#include "steelyard/kernels/cpu/row_sums.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/typed_quant.h"

namespace steelyard::kernels {

template <typename T, typename Code>
void compute(const Quantize<T, Code>& k) {
  quant_forward_cpu(problem_of(k), args_of(k));
}

template <typename T, typename Code>
void compute(const Dequantize<T, Code>& k) {
  quant_forward_cpu(problem_of(k), args_of(k));
}

template <typename T>
void compute(const ApplyMask<T>& k) {
  const T one = 1;  // with a mask the scale does not matter
  QuantArgs args = args_of(k);
  args.scale = const_cast<T*>(&one);
  quant_backward_cpu(problem_of(k), args);
}

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
  const ColumnSums<T> of{.rows = k.rows, .channels = k.channels, .x = k.grad_x, .sums = k.sums};
  const auto term = [of](std::int64_t i, std::int64_t c) { return of.term(i, c); };
  const std::vector<double> sums =
      prepared_row_sums(RowChunks(k.rows, k.channels), apply_mask, term);
  for (std::int64_t c = 0; c < k.channels; ++c) of.finish(c, sums[c]);
}

template struct CpuKernels<FakeQuantizeKernels>;

}  // namespace steelyard::kernels
