#include "steelyard/kernels/embedding/embedding.h"

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

// A thread has some of the outer * width columns, so that every sum is one thread's.
template <typename T>
void compute(const GatherBackward<T>& k) {
  std::fill_n(k.grad_x, k.outer * k.extent * k.width, T(0));
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMapGrain / std::max<std::int64_t>(1, k.count));
  parallel_for(k.outer * k.width, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin / k.width; o * k.width < end; ++o) {
      const std::int64_t first = std::max(begin - o * k.width, std::int64_t{0});
      const std::int64_t last = std::min(end - o * k.width, k.width);
      for (std::int64_t i = 0; i < k.count; ++i) {
        if (k.indices[i] < 0 || k.indices[i] >= k.extent) continue;
        T* row = k.grad_x + (o * k.extent + k.indices[i]) * k.width;
        const T* more = k.grad_y + (o * k.count + i) * k.width;
        for (std::int64_t c = first; c < last; ++c) row[c] += more[c];
      }
    }
  });
}

template struct CpuKernels<EmbeddingKernels>;

}  // namespace steelyard::kernels
