#include "steelyard/kernels/attention/attention.h"

#include <cmath>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {
namespace {

// The values of a head that a lane of a warp holds: d = lane, lane + 32, ...
constexpr int kMostOfLane = static_cast<int>(kMostHeadWidth / 32);

template <typename T>
struct HeadValues {
  T of[kMostOfLane] = {};

  __device__ void read(const T* from, std::int64_t width, int lane) {
#pragma unroll
    for (int n = 0; n < kMostOfLane; ++n) {
      const std::int64_t d = lane + 32 * n;
      of[n] = d < width ? from[d] : T(0);
    }
  }
  __device__ void write(T* to, std::int64_t width, int lane, T factor) const {
#pragma unroll
    for (int n = 0; n < kMostOfLane; ++n) {
      const std::int64_t d = lane + 32 * n;
      if (d < width) to[d] = of[n] * factor;
    }
  }
  __device__ void add(T factor, const HeadValues& x) {
#pragma unroll
    for (int n = 0; n < kMostOfLane; ++n) of[n] += factor * x.of[n];
  }
  __device__ void scale(T factor) {
#pragma unroll
    for (int n = 0; n < kMostOfLane; ++n) of[n] *= factor;
  }
  // The product with other values, in every lane.
  __device__ T dot(const HeadValues& x) const {
    T sum = 0;
#pragma unroll
    for (int n = 0; n < kMostOfLane; ++n) sum += of[n] * x.of[n];
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(cuda::kFullWarp, sum, half);
    return sum;
  }
};

// What a warp computes: a query, or a key, of a head in a sample.
struct WarpPlace {
  std::int64_t sample, head, index;
  int lane;

  __device__ WarpPlace(std::int64_t heads, std::int64_t length)
      : lane(static_cast<int>(threadIdx.x % 32)) {
    const std::int64_t warp = cuda::element_index() / 32;
    const std::int64_t row = cuda::divide(warp, length);
    index = warp - row * length;
    sample = cuda::divide(row, heads);
    head = row - sample * heads;
  }
};

template <typename T>
__device__ T score_scale(const AttentionShape& shape) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(shape.width)));
}

// A warp for each query.
template <typename T>
__global__ void __launch_bounds__(cuda::kThreads)
    attend_kernel(std::int64_t threads, CausalAttention<T> a) {
  if (cuda::element_index() >= threads) return;
  const AttentionShape& s = a.shape;
  const WarpPlace place(s.heads, s.queries);
  const std::int64_t key_head = cuda::divide(place.head, s.group());
  const std::int64_t at = s.query_at(place.sample, place.head, place.index);
  const T scale = score_scale<T>(s);
  HeadValues<T> query, key, value, sum;
  query.read(a.q + at, s.width, place.lane);
  T most = -static_cast<T>(INFINITY);
  double total = 0;
  const std::int64_t position = s.earlier() + place.index;
  for (std::int64_t j = s.start_of(a.starts, place.sample, position); j <= position; ++j) {
    const std::int64_t key_at = s.key_at(place.sample, key_head, j);
    key.read(a.k + key_at, s.width, place.lane);
    value.read(a.v + key_at, s.width, place.lane);
    const T score = scale * query.dot(key);
    const T now = score > most ? score : most;
    const T shrink = std::exp(most - now), share = std::exp(score - now);
    most = now;
    total = total * static_cast<double>(shrink) + static_cast<double>(share);
    sum.scale(shrink);
    sum.add(share, value);
  }
  sum.write(a.y + at, s.width, place.lane, static_cast<T>(1 / total));
  if (place.lane == 0) {
    a.log_sums[s.row_of(place.sample, place.head, place.index)] =
        static_cast<T>(static_cast<double>(most) + std::log(total));
  }
}

// A warp for each query: its gradient, and the projection of its output's.
template <typename T>
__global__ void __launch_bounds__(cuda::kThreads)
    query_gradient_kernel(std::int64_t threads, CausalAttentionBackward<T> a) {
  if (cuda::element_index() >= threads) return;
  const AttentionShape& s = a.shape;
  const WarpPlace place(s.heads, s.queries);
  const std::int64_t key_head = cuda::divide(place.head, s.group());
  const std::int64_t at = s.query_at(place.sample, place.head, place.index);
  const std::int64_t row = s.row_of(place.sample, place.head, place.index);
  const T scale = score_scale<T>(s);
  HeadValues<T> query, gradient, key, value, sum;
  query.read(a.q + at, s.width, place.lane);
  gradient.read(a.grad_y + at, s.width, place.lane);
  value.read(a.y + at, s.width, place.lane);
  const T projection = gradient.dot(value);
  const std::int64_t position = s.earlier() + place.index;
  for (std::int64_t j = s.start_of(a.starts, place.sample, position); j <= position; ++j) {
    const std::int64_t key_at = s.key_at(place.sample, key_head, j);
    key.read(a.k + key_at, s.width, place.lane);
    value.read(a.v + key_at, s.width, place.lane);
    const T share = std::exp(scale * query.dot(key) - a.log_sums[row]);
    sum.add(share * (gradient.dot(value) - projection) * scale, key);
  }
  sum.write(a.grad_q + at, s.width, place.lane, T(1));
  if (place.lane == 0) a.projections[row] = projection;
}

// A warp for each key: the gradients of it and of its value, from all queries that see it.
template <typename T>
__global__ void __launch_bounds__(cuda::kThreads)
    key_gradients_kernel(std::int64_t threads, CausalAttentionBackward<T> a) {
  if (cuda::element_index() >= threads) return;
  const AttentionShape& s = a.shape;
  const WarpPlace place(s.key_heads, s.keys);
  const std::int64_t at = s.key_at(place.sample, place.head, place.index);
  const T scale = score_scale<T>(s);
  HeadValues<T> key, value, query, gradient, of_key, of_value;
  key.read(a.k + at, s.width, place.lane);
  value.read(a.v + at, s.width, place.lane);
  const std::int64_t first = place.index > s.earlier() ? place.index - s.earlier() : 0;
  for (std::int64_t h = place.head * s.group(); h < (place.head + 1) * s.group(); ++h) {
    for (std::int64_t i = first; i < s.queries; ++i) {
      if (s.start_of(a.starts, place.sample, s.earlier() + i) > place.index) break;
      const std::int64_t query_at = s.query_at(place.sample, h, i);
      const std::int64_t row = s.row_of(place.sample, h, i);
      query.read(a.q + query_at, s.width, place.lane);
      gradient.read(a.grad_y + query_at, s.width, place.lane);
      const T share = std::exp(scale * query.dot(key) - a.log_sums[row]);
      of_value.add(share, gradient);
      of_key.add(share * (gradient.dot(value) - a.projections[row]) * scale, query);
    }
  }
  of_key.write(a.grad_k + at, s.width, place.lane, T(1));
  of_value.write(a.grad_v + at, s.width, place.lane, T(1));
}

std::int64_t query_threads(const AttentionShape& s) { return s.samples * s.heads * s.queries * 32; }

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const CausalAttention<T>& a) {
  cuda::launch_elements(queue, attend_kernel<T>, query_threads(a.shape), a);
}

template <typename T>
void compute(const CudaQueue& queue, const CausalAttentionBackward<T>& a) {
  cuda::launch_elements(queue, query_gradient_kernel<T>, query_threads(a.shape), a);
  const std::int64_t keys = a.shape.samples * a.shape.key_heads * a.shape.keys;
  cuda::launch_elements(queue, key_gradients_kernel<T>, 32 * keys, a);
}

template struct CudaKernels<AttentionKernels>;

}  // namespace steelyard::kernels
