// Quantization with a scale that the call itself, or a moving average of calls, decides. Switches,
// averages and scales stay on the device: every call launches the same kernels.
//
// Extremes are gathered by atomic minima and maxima of integers that order like the floats, so the
// order in which blocks arrive does not show.
#include "kernels/cuda/quant_statistics.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/cuda/quant_cuda.h"
#include "kernels/cuda/quant_forward.h"
#include "kernels/qparams.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Signed integers in the order of the finite floats and infinities; -0 comes before +0.
template <typename T>
struct Ordered;
template <>
struct Ordered<float> {
  using Key = int;
  static constexpr Key kSignless = 0x7FFFFFFF;
};
template <>
struct Ordered<double> {
  using Key = long long;
  static constexpr Key kSignless = 0x7FFFFFFFFFFFFFFFLL;
};
template <typename T>
using Key = typename Ordered<T>::Key;

template <typename T>
__device__ Key<T> to_key(T value) {
  const Key<T> bits = bits_as<Key<T>>(value);
  return bits >= 0 ? bits : bits ^ Ordered<T>::kSignless;
}

template <typename T>
__device__ T from_key(Key<T> key) {
  return bits_as<T>(key >= 0 ? key : key ^ Ordered<T>::kSignless);
}

template <typename T>
__device__ constexpr T infinity() {
  return static_cast<T>(INFINITY);
}

// One call's extremes, a slot per set.
template <typename T>
struct Seen {
  Key<T>* lo;
  Key<T>* hi;
  unsigned long long* skipped;
};

template <typename T>
Seen<T> seen_in(void* workspace, std::int64_t sets) {
  auto* skipped = static_cast<unsigned long long*>(workspace);
  auto* lo = reinterpret_cast<Key<T>*>(skipped + sets);
  return {lo, lo + sets, skipped};
}

template <typename T>
struct Extremes {
  T lo = infinity<T>();
  T hi = -infinity<T>();
  unsigned skipped = 0;

  __device__ void take(T value) {
    const bool finite = value - value == T(0);
    lo = finite && value < lo ? value : lo;
    hi = finite && value > hi ? value : hi;
    skipped += finite ? 0U : 1U;
  }
};

// Memory is touched only where it would change.
template <typename T>
__device__ void fold(const Extremes<T>& part, std::int64_t set, const Seen<T>& seen) {
  const Key<T> lo = to_key(part.lo);
  const Key<T> hi = to_key(part.hi);
  if (lo < seen.lo[set]) atomicMin(seen.lo + set, lo);
  if (hi > seen.hi[set]) atomicMax(seen.hi + set, hi);
  if (part.skipped != 0) atomicAdd(seen.skipped + set, part.skipped);
}

// Every thread of the warp calls it with the extremes of its elements, all of one set: lanes that
// agree on the set meet first.
template <typename T>
__device__ void fold_by_warp(const Sets& sets, const Span& span, Extremes<T> part,
                             const Seen<T>& seen) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const std::int64_t set = span.count > 0 ? sets.of(span.first) : -1;
  const std::int64_t first = __shfl_sync(kAll, set, 0);
  if (__all_sync(kAll, set == first || set < 0) == 0) {
    if (set >= 0) fold(part, set, seen);
    return;
  }
#pragma unroll 1
  for (int half = 16; half > 0; half /= 2) {
    const T lo = __shfl_down_sync(kAll, part.lo, half);
    const T hi = __shfl_down_sync(kAll, part.hi, half);
    part.lo = lo < part.lo ? lo : part.lo;
    part.hi = hi > part.hi ? hi : part.hi;
    part.skipped += __shfl_down_sync(kAll, part.skipped, half);
  }
  if (threadIdx.x % 32 == 0 && set >= 0) fold(part, set, seen);
}

// Every thread of the warp calls it. `eight` holds the span's values where they were loaded
// already, else it is null.
template <typename V>
__device__ void observe_span(const ValueArray<V>& x, const Sets& sets, const Span& span,
                             const ComputeType<V>* eight, const Seen<ComputeType<V>>& seen) {
  using T = ComputeType<V>;
  Extremes<T> part;
  if (eight != nullptr) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) part.take(eight[i]);
  } else {
#pragma unroll 1
    for (int i = 0; i < span.count; ++i) {
      part.take(x.get(span.first + i));
      if (sets.eight_share) continue;
      fold(part, sets.of(span.first + i), seen);
      part = Extremes<T>();
    }
  }
  if (sets.eight_share) fold_by_warp(sets, span, part, seen);
}

template <typename T>
__global__ void clear_kernel(Seen<T> seen, std::int64_t sets) {
  const std::int64_t set = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (set >= sets) return;
  seen.lo[set] = to_key(infinity<T>());
  seen.hi[set] = to_key(-infinity<T>());
  seen.skipped[set] = 0;
}

template <typename V>
__global__ void __launch_bounds__(kThreads)
    observe_kernel(ValueArray<V> x, std::int64_t elements, Sets sets, const std::uint8_t* observing,
                   Seen<ComputeType<V>> seen) {
  if (!is_on(observing)) return;
  const Span span = span_of(blockIdx.x, elements);
  ComputeType<V> values[kEight];
  const bool plain = x.wide && sets.eight_share && span.count == kEight;
  if (plain) x.load_eight(span.first, values);
  observe_span(x, sets, span, plain ? values : nullptr, seen);
}

// Quantizes with the scale of earlier calls while it observes.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    observe_and_forward_kernel(ForwardCall<V> call, Sets sets, const std::uint8_t* observing,
                               Seen<ComputeType<V>> seen) {
  const Span span = span_of(blockIdx.x, call.elements);
  ComputeType<V> values[kEight];
  const bool plain = is_plain(call, sets, span);
  if (plain) call.x.load_eight(span.first, values);
  if (is_on(observing)) observe_span(call.x, sets, span, plain ? values : nullptr, seen);
  if (plain) {
    quantize_eight(call, sets, span, values);
  } else if (span.count > 0) {
    quantize_one_by_one(call, sets, span);
  }
}

template <typename V>
struct Update {
  using T = ComputeType<V>;

  std::int64_t sets;
  Statistics statistics;
  CodeRange range;
  bool symmetric;
  double averaging_constant;
  Seen<T> seen;
  T* range_lo;
  T* range_hi;
  T* scale;
  std::int32_t* zero_point;
  std::uint8_t* initialised;
  unsigned long long* non_finite_count;
  const std::uint8_t* observing;
};

// One thread, one set: its extremes enter the average, which gives scale and zero point.
template <typename V>
__global__ void update_kernel(Update<V> u) {
  using T = ComputeType<V>;
  const std::int64_t set = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (set >= u.sets || !is_on(u.observing)) return;
  T lo = from_key<T>(u.seen.lo[set]) + T(0);  // -0 + 0 = +0
  T hi = from_key<T>(u.seen.hi[set]) + T(0);
  if (u.statistics != Statistics::kDynamic) {
    if (lo <= hi) *u.initialised = 1;
    update_range(u.range_lo[set], u.range_hi[set], lo, hi, u.averaging_constant);
    lo = u.range_lo[set];
    hi = u.range_hi[set];
  }
  const auto chosen =
      qparams_of_range<V>(static_cast<double>(lo), static_cast<double>(hi), u.range, u.symmetric);
  u.scale[set] = chosen.scale;
  u.zero_point[set] = chosen.zero_point;
  if (u.non_finite_count != nullptr && u.seen.skipped[set] != 0) {
    atomicAdd(u.non_finite_count, u.seen.skipped[set]);
  }
}

template <typename V>
void forward_with_statistics_of(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                                cudaStream_t stream) {
  using T = ComputeType<V>;
  const bool dynamic = problem.statistics == Statistics::kDynamic;
  const std::uint8_t* observing = dynamic ? nullptr : args.observing;
  const Sets sets = make_sets(problem.map);
  const ForwardCall<V> call = forward_call<V>(problem, args);
  const Seen<T> seen = seen_in<T>(workspace, problem.map.sets);
  const LaunchShape by_eights = shape_for_eights(problem.map.elements);
  const LaunchShape by_set{(problem.map.sets + kThreads - 1) / kThreads, kThreads};
  const Update<V> update{problem.map.sets,
                         problem.statistics,
                         problem.range,
                         problem.symmetric,
                         problem.averaging_constant,
                         seen,
                         static_cast<T*>(args.range_lo),
                         static_cast<T*>(args.range_hi),
                         static_cast<T*>(args.scale),
                         args.zero_point,
                         args.initialised,
                         reinterpret_cast<unsigned long long*>(args.non_finite_count),
                         observing};
  launch(clear_kernel<T>, by_set, stream, seen, problem.map.sets);
  if (problem.statistics == Statistics::kDelayed) {
    launch(observe_and_forward_kernel<V>, by_eights, stream, call, sets, observing, seen);
    launch(update_kernel<V>, by_set, stream, update);
    return;
  }
  launch(observe_kernel<V>, by_eights, stream, call.x, problem.map.elements, sets, observing, seen);
  launch(update_kernel<V>, by_set, stream, update);
  launch(forward_kernel<V>, by_eights, stream, call, sets);
}

}  // namespace

void forward_with_statistics(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                             cudaStream_t stream) {
  visit_value_type(problem.value_type, [&](auto* tag) {
    forward_with_statistics_of<std::remove_pointer_t<decltype(tag)>>(problem, workspace, args,
                                                                     stream);
  });
}

}  // namespace cuda

std::size_t statistics_workspace_cuda(const QuantProblem& problem) {
  const std::size_t key = problem.value_type == ValueType::kF64 ? 8 : 4;
  return static_cast<std::size_t>(problem.map.sets) * (8 + 2 * key);
}

void require_cuda() { cuda::require_device(); }

std::int64_t first_invalid_set_cuda(const QuantProblem& problem, const QuantArgs& args) {
  if (problem.statistics != Statistics::kGiven) {
    std::uint8_t initialised = 0;
    cuda::copy_to_host(&initialised, args.initialised, 1, nullptr);
    if (initialised == 0) return -1;
  }
  const auto check = [&]<typename T>(T) -> std::int64_t {
    const auto sets = static_cast<std::size_t>(problem.map.sets);
    std::vector<T> scale(sets);
    std::vector<std::int32_t> zero_point(sets, 0);
    cuda::copy_to_host(scale.data(), args.scale, sets * sizeof(T), nullptr);
    if (args.zero_point != nullptr) {
      cuda::copy_to_host(zero_point.data(), args.zero_point, sets * 4, nullptr);
    }
    return first_invalid_set(problem, scale.data(), zero_point.data());
  };
  return problem.value_type == ValueType::kF64 ? check(double{}) : check(float{});
}

}  // namespace steelyard::kernels
