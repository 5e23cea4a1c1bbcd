// Gradients of x, scale and zero point in one pass, summed in the order of kernels/quant_sums.h.
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_kernels.h"
#include "steelyard/kernels/quant_sums.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

static_assert(kSumLanes == 32, "a warp sums a chunk");
static_assert(kTotalLanes == kThreads, "a block sums the chunks of a set");

// One warp, one chunk of a set.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    chunk_kernel(QuantProblem problem, QuantArgs args, std::int64_t chunks, double* scale_sums,
                 double* zero_point_sums) {
  using T = ComputeType<V>;
  const SetMap& map = problem.map;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (warp >= map.sets * chunks) return;
  const std::int64_t set = divide(warp, chunks);
  const std::int64_t begin = (warp - set * chunks) * kSumChunk;
  const std::int64_t size = map.size_of(set);
  const std::int64_t end = begin + kSumChunk < size ? begin + kSumChunk : size;
  const SetParameters<T> parameters{static_cast<const T*>(args.scale), args.zero_point,
                                    problem.range};
  const Affine<T> p = parameters.at(set);
  const bool on = is_on(args.quantizing);
  T scale_sum = 0;
  T zero_point_sum = 0;
  for (std::int64_t k = begin + lane; k < end; k += kSumLanes) {
    const std::int64_t at = problem.strides.offset_of(map.element_of(set, k));
    const T x = widen(static_cast<const V*>(args.x)[at]);
    const T grad = widen(static_cast<const V*>(args.grad_y)[at]);
    LearnedGradients<T> of{grad, T(0), T(0)};
    if (on) of = learned_gradients(x, grad, p);
    scale_sum += of.scale;
    zero_point_sum += of.zero_point;
    static_cast<V*>(args.grad_x)[at] = narrow<V>(of.x);
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    scale_sum += __shfl_down_sync(0xFFFFFFFFU, scale_sum, half);
    zero_point_sum += __shfl_down_sync(0xFFFFFFFFU, zero_point_sum, half);
  }
  if (lane == 0) {
    scale_sums[warp] = static_cast<double>(scale_sum);
    zero_point_sums[warp] = static_cast<double>(zero_point_sum);
  }
}

// One block, one set: the sums of its chunks. The first `sets` are of scales, more of zero points.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    total_kernel(const double* sums, std::int64_t sets, std::int64_t chunks, double factor,
                 T* grad_scale, T* grad_zero_point) {
  double* lanes = shared_memory<double>();
  const int lane = static_cast<int>(threadIdx.x);
  const double* mine = sums + blockIdx.x * chunks;
  double sum = 0;
  for (std::int64_t c = lane; c < chunks; c += kTotalLanes) sum += mine[c];
  lanes[lane] = sum;
  for (int half = kTotalLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] += lanes[lane + half];
  }
  if (lane != 0) return;
  const std::int64_t set = blockIdx.x;
  (set < sets ? grad_scale[set] : grad_zero_point[set - sets]) = static_cast<T>(factor * lanes[0]);
}

template <typename V>
void parameter_gradients(const QuantParameterGradients& k, cudaStream_t stream) {
  using T = ComputeType<V>;
  const auto& [problem, args, workspace] = k;
  const std::int64_t chunks = sum_chunks_per_set(problem.map);
  const std::int64_t warps = problem.map.sets * chunks;
  double* sums = static_cast<double*>(workspace);
  constexpr std::int64_t kWarps = kThreads / 32;
  launch(chunk_kernel<V>, {(warps + kWarps - 1) / kWarps, kThreads}, stream, problem, args, chunks,
         sums, sums + warps);
  const std::int64_t blocks = problem.map.sets * (args.grad_zero_point == nullptr ? 1 : 2);
  launch(total_kernel<T>, {blocks, kThreads, kTotalLanes * sizeof(double)}, stream,
         static_cast<const double*>(sums), problem.map.sets, chunks, problem.gradient_factor,
         static_cast<T*>(args.grad_scale), static_cast<T*>(args.grad_zero_point));
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
