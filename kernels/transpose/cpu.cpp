#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/transpose/transpose.h"

namespace steelyard::kernels {

// Works in blocks that stay in the cache.
template <typename T>
void compute(const Transpose<T>& kernel) {
  constexpr std::int64_t kBlock = 16;
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const std::int64_t bands = (rows + kBlock - 1) / kBlock;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMapGrain / (kBlock * std::max<std::int64_t>(columns, 1)));
  parallel_for(kernel.batch * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t band = begin; band < end; ++band) {
      const T* from = kernel.x + band / bands * rows * columns;
      T* to = kernel.y + band / bands * rows * columns;
      const std::int64_t r0 = band % bands * kBlock, r1 = std::min(rows, r0 + kBlock);
      for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock) {
        const std::int64_t c1 = std::min(columns, c0 + kBlock);
        for (std::int64_t c = c0; c < c1; ++c) {
          for (std::int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  });
}

template struct CpuKernels<TransposeKernels>;

}  // namespace steelyard::kernels
