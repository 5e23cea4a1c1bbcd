// Quantization with a scale that follows from the values of the call itself, or from a moving
// average over calls. Switches, averages and scales stay on the device: every call launches the
// same kernels.
#include <vector>

#include "steelyard/kernels/cuda/extremes.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_plan/cuda.h"
#include "steelyard/kernels/quant_plan/cuda_forward.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// One thread, one set.
template <typename V>
__global__ void update_kernel(QuantProblem problem, QuantArgs args, const std::uint8_t* observing,
                              Seen<ComputeType<V>> seen) {
  using T = ComputeType<V>;
  const std::int64_t set = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (set >= problem.map.sets || !is_on(observing)) return;
  const T lo = from_key<T>(seen.lo[set]), hi = from_key<T>(seen.hi[set]);
  follow_set<V>(SetRule<T>(problem, args), set, lo, hi);
  note_finite(problem, args, lo <= hi);
  count(static_cast<std::int64_t>(seen.skipped[set]), args.non_finite_count);
}

template <typename V>
void forward_with_statistics(const QuantWithStatistics& k, cudaStream_t stream) {
  using T = ComputeType<V>;
  const auto& [problem, args, workspace] = k;
  const bool dynamic = problem.statistics == Statistics::kDynamic;
  const std::uint8_t* observing = dynamic ? nullptr : args.observing;
  const Sets sets = make_sets(problem.map);
  const ForwardCall<V> call = forward_call<V>(problem, args);
  const Seen<T> seen = seen_in<T>(workspace, problem.map.sets);
  const std::int64_t n = problem.map.elements;
  const LaunchShape by_set{(problem.map.sets + kThreads - 1) / kThreads, kThreads};
  launch(clear_kernel<T>, by_set, stream, seen, problem.map.sets);
  launch(observe_kernel<V>, shape_for_spans<observe_kernel<V>>(n), stream, call.x, n, sets,
         observing, seen);
  const auto update = [&] {
    launch(update_kernel<V>, by_set, stream, problem, args, observing, seen);
  };
  // One kernel that did both took twice as long with one scale for all floats (H200).
  const bool delayed = problem.statistics == Statistics::kDelayed;
  if (!delayed) update();
  launch(forward_kernel<V>, shape_for_spans<forward_kernel<V>>(n), stream, call, sets);
  if (delayed) update();
}

}  // namespace
}  // namespace cuda

static void compute(const CudaQueue& queue, const QuantWithStatistics& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) {
    cuda::forward_with_statistics<V>(k, cuda::stream_of(queue));
  });
}

template struct CudaKernels<KernelList<QuantWithStatistics>>;

void require_cuda() { cuda::require_device(); }

std::int64_t first_invalid_set_cuda(const QuantProblem& problem, const QuantArgs& args) {
  if (problem.statistics != Statistics::kGiven) {
    std::uint8_t initialized = 0;
    cuda::copy_to_host(&initialized, args.initialized, 1, nullptr);
    if (initialized == 0) return -1;
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
