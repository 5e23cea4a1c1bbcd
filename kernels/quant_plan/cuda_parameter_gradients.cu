// Gradients of x, scale and zero point in one pass, summed in the order of
// kernels/quant_plan/quant_sums.h.
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quant_plan/quant_sums.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

static_assert(kSumLanes == 32, "a warp sums a chunk");
static_assert(kTotalLanes == kThreads, "a block sums the chunks of a set");

// The logical indices of elements k, k + kSumLanes ... of a set, for channels without a division
// each.
class SetSteps {
 public:
  __device__ SetSteps(const Sets& sets, std::int64_t set, std::int64_t k)
      : sets_(sets), set_(set), k_(k), index_(sets.map.element_of(set, k)) {
    if (sets.channels == 0) return;
    column_ = k - divide(k, sets.inner) * sets.inner;
    const std::int64_t rows = divide(kSumLanes, sets.inner);
    columns_ = kSumLanes - rows * sets.inner;
    step_ = rows * sets.channels * sets.inner + columns_;
  }
  __device__ std::int64_t index() const { return index_; }
  __device__ void next() {
    if (sets_.channels == 0) {
      k_ += kSumLanes;
      index_ = sets_.map.element_of(set_, k_);
      return;
    }
    index_ += step_;
    column_ += columns_;
    if (column_ < sets_.inner) return;
    column_ -= sets_.inner;
    index_ += (sets_.channels - 1) * sets_.inner;
  }

 private:
  const Sets& sets_;
  std::int64_t set_, k_, index_;
  std::int64_t column_ = 0, columns_ = 0, step_ = 0;
};

template <typename T>
struct ParameterSums {
  double factor;
  std::int64_t sets, chunks;
  double* parts;  // of scales, then of zero points, if there is more than one chunk
  T* grad_scale;
  T* grad_zero_point;  // may be null

  __device__ std::int64_t part(std::int64_t set, std::int64_t chunk) const {
    return set * chunks + chunk;
  }
  __device__ T total(double sum) const { return static_cast<T>(factor * sum); }
};

// One warp, one chunk of a set. Neighbouring warps have neighbouring sets, whose elements may lie
// side by side.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    chunk_kernel(QuantProblem problem, QuantArgs args, Sets sets,
                 ParameterSums<ComputeType<V>> sums) {
  using T = ComputeType<V>;
  const SetMap& map = problem.map;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (warp >= map.sets * sums.chunks) return;
  const std::int64_t chunk = divide(warp, map.sets);
  const std::int64_t set = warp - chunk * map.sets;
  const std::int64_t begin = chunk * kSumChunk;
  const std::int64_t size = map.size_of(set);
  const std::int64_t end = begin + kSumChunk < size ? begin + kSumChunk : size;
  const SetParameters<T> parameters{static_cast<const T*>(args.scale), args.zero_point,
                                    problem.range};
  const CodeGrid<T> p = parameters.at(set);
  const bool on = is_on(args.quantizing);
  T scale_sum = 0;
  T zero_point_sum = 0;
  SetSteps steps(sets, set, begin + lane);
  // Some are read before the first is written, which may be in their place.
  constexpr int kAhead = 4;
  for (std::int64_t first = begin + lane; first < end; first += kAhead * kSumLanes) {
    std::int64_t at[kAhead];
    T x[kAhead], grad[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kSumLanes >= end) continue;
      at[i] = problem.strides.offset_of(steps.index());
      x[i] = widen(static_cast<const V*>(args.x)[at[i]]);
      grad[i] = widen(static_cast<const V*>(args.grad_y)[at[i]]);
      steps.next();
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kSumLanes >= end) continue;
      LearnedGradients<T> of{grad[i], T(0), T(0)};
      if (on) of = learned_gradients(x[i], grad[i], p);
      scale_sum += of.scale;
      zero_point_sum += of.zero_point;
      static_cast<V*>(args.grad_x)[at[i]] = narrow<V>(of.x);
    }
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    scale_sum += __shfl_down_sync(0xFFFFFFFFU, scale_sum, half);
    zero_point_sum += __shfl_down_sync(0xFFFFFFFFU, zero_point_sum, half);
  }
  if (lane != 0) return;
  const double of_scale = static_cast<double>(scale_sum);
  const double of_zero_point = static_cast<double>(zero_point_sum);
  if (sums.chunks == 1) {  // what total_kernel() does with one
    sums.grad_scale[set] = sums.total(0.0 + of_scale);
    if (sums.grad_zero_point != nullptr) {
      sums.grad_zero_point[set] = sums.total(0.0 + of_zero_point);
    }
    return;
  }
  sums.parts[sums.part(set, chunk)] = of_scale;
  sums.parts[sums.part(map.sets + set, chunk)] = of_zero_point;
}

// One block, one set: the sums of its chunks. The first `sets` are of scales, more of zero points.
template <typename T>
__global__ void __launch_bounds__(kThreads) total_kernel(ParameterSums<T> sums) {
  double* lanes = shared_memory<double>();
  const int lane = static_cast<int>(threadIdx.x);
  const double* mine = sums.parts + sums.part(blockIdx.x, 0);
  double sum = 0;
  for (std::int64_t c = lane; c < sums.chunks; c += kTotalLanes) sum += mine[c];
  lanes[lane] = sum;
  for (int half = kTotalLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] += lanes[lane + half];
  }
  if (lane != 0) return;
  const std::int64_t set = blockIdx.x;
  (set < sums.sets ? sums.grad_scale[set] : sums.grad_zero_point[set - sums.sets]) =
      sums.total(lanes[0]);
}

template <typename V>
void parameter_gradients(const QuantParameterGradients& k, cudaStream_t stream) {
  using T = ComputeType<V>;
  const auto& [problem, args, workspace] = k;
  const std::int64_t sets = problem.map.sets;
  const ParameterSums<T> sums{
      problem.gradient_factor,          sets,
      sum_chunks_per_set(problem.map),  static_cast<double*>(workspace),
      static_cast<T*>(args.grad_scale), static_cast<T*>(args.grad_zero_point)};
  const std::int64_t warps = sets * sums.chunks;
  constexpr std::int64_t kWarps = kThreads / 32;
  launch(chunk_kernel<V>, {(warps + kWarps - 1) / kWarps, kThreads}, stream, problem, args,
         make_sets(problem.map), sums);
  if (sums.chunks == 1) return;
  const std::int64_t blocks = sets * (args.grad_zero_point == nullptr ? 1 : 2);
  launch(total_kernel<T>, {blocks, kThreads, kTotalLanes * sizeof(double)}, stream, sums);
}

}  // namespace
}  // namespace cuda

static void compute(const CudaQueue& queue, const QuantParameterGradients& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) {
    cuda::parameter_gradients<V>(k, cuda::stream_of(queue));
  });
}

template struct CudaKernels<KernelList<QuantParameterGradients>>;

}  // namespace steelyard::kernels
