#include "steelyard/kernels/reduce/reduce.h"

#include "steelyard/kernels/cuda/extremes.h"
#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {
namespace {

using cuda::Key;

template <typename T>
__global__ void finish_kernel(std::int64_t n, const Key<T>* low, const Key<T>* high,
                              const unsigned long long* skipped, MinMax<T> k) {
  const std::int64_t c = cuda::element_index();
  if (c >= n) return;
  k.lo[c] = cuda::from_key<T>(low[c]) + T(0);  // -0 + 0 = +0
  k.hi[c] = cuda::from_key<T>(high[c]) + T(0);
  if (k.non_finite != nullptr) k.non_finite[c] = static_cast<std::int64_t>(skipped[c]);
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const MinMax<T>& k) {
  const std::int64_t channels = k.layout.channels;
  if (channels == 0) return;
  const cuda::Scratch<unsigned long long> workspace(queue, 3 * channels);
  const cuda::Seen<T> seen = cuda::seen_in<T>(workspace.data(), channels);
  const std::uint8_t* const observing = nullptr;
  cuda::launch(cuda::clear_kernel<T>, {cuda::blocks_for(channels), cuda::kThreads},
               cuda::stream_of(queue), seen, channels);
  cuda::launch(cuda::observe_kernel<T>,
               cuda::shape_for_spans<cuda::observe_kernel<T>>(k.layout.size()),
               cuda::stream_of(queue), cuda::value_array<T>(k.x, StrideMap()), k.layout.size(),
               cuda::make_sets(make_set_map(k.layout)), observing, seen);
  cuda::launch_elements(queue, finish_kernel<T>, channels, static_cast<const Key<T>*>(seen.lo),
                        static_cast<const Key<T>*>(seen.hi),
                        static_cast<const unsigned long long*>(seen.skipped), k);
}

template struct CudaKernels<ReduceKernels>;

}  // namespace steelyard::kernels
