#include "steelyard/kernels/embedding/embedding.h"

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

template <typename T>
void compute(const EmbeddingBackward<T>& k) {
  std::fill_n(k.grad_table, k.table_rows * k.width, T(0));
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMapGrain / std::max<std::int64_t>(1, k.count));
  parallel_for(k.width, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < k.count; ++i) {
      if (k.indices[i] < 0 || k.indices[i] >= k.table_rows) continue;
      T* row = k.grad_table + k.indices[i] * k.width;
      for (std::int64_t c = begin; c < end; ++c) row[c] += k.grad_y[i * k.width + c];
    }
  });
}

template struct CpuKernels<EmbeddingKernels>;

}  // namespace steelyard::kernels
