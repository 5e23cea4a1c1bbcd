#include "kernels/reduce.h"

#include "kernels/cuda/extremes.h"

namespace steelyard::kernels {
namespace {

using cuda::Key;
using cuda::launch_elements;

template <typename T>
__global__ void finish_kernel(std::int64_t n, const Key<T>* low, const Key<T>* high,
                              const unsigned long long* skipped, T* lo, T* hi,
                              std::int64_t* non_finite) {
  const std::int64_t c = cuda::element_index();
  if (c >= n) return;
  lo[c] = cuda::from_key<T>(low[c]) + T(0);  // -0 + 0 = +0
  hi[c] = cuda::from_key<T>(high[c]) + T(0);
  if (non_finite != nullptr) non_finite[c] = static_cast<std::int64_t>(skipped[c]);
}

}  // namespace

template <typename T>
void min_max(const CudaQueue& queue, const ChannelLayout& layout, const T* x, T* lo, T* hi,
             std::int64_t* non_finite) {
  if (layout.channels == 0) return;
  const cuda::Scratch<unsigned long long> workspace(queue, 3 * layout.channels);
  const cuda::Seen<T> seen = cuda::seen_in<T>(workspace.data(), layout.channels);
  const std::uint8_t* const observing = nullptr;
  cuda::launch(cuda::clear_kernel<T>,
               {(layout.channels + cuda::kThreads - 1) / cuda::kThreads, cuda::kThreads},
               cuda::stream_of(queue), seen, layout.channels);
  cuda::launch(cuda::observe_kernel<T>, cuda::shape_for_eights(layout.size()),
               cuda::stream_of(queue), cuda::value_array<T>(x, StrideMap()), layout.size(),
               cuda::make_sets(make_set_map(layout)), observing, seen);
  launch_elements(queue, finish_kernel<T>, layout.channels, static_cast<const Key<T>*>(seen.lo),
                  static_cast<const Key<T>*>(seen.hi),
                  static_cast<const unsigned long long*>(seen.skipped), lo, hi, non_finite);
}

template void min_max(const CudaQueue&, const ChannelLayout&, const float*, float*, float*,
                      std::int64_t*);
template void min_max(const CudaQueue&, const ChannelLayout&, const double*, double*, double*,
                      std::int64_t*);

}  // namespace steelyard::kernels
