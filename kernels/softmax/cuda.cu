// A block, a row of logits: one warp where there are few classes.
#include "steelyard/kernels/softmax/softmax.h"

#include <limits>

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/softmax/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::block_reduce;
using cuda::block_sum;
using cuda::kFullWarp;
using cuda::kThreads;
using cuda::launch;
using cuda::LaunchShape;
using cuda::Scratch;
using cuda::shared_memory;
using cuda::stream_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLowest = -std::numeric_limits<double>::infinity();

LaunchShape row_shape(std::int64_t rows, std::int64_t classes) {
  const std::int64_t warps = (classes + 31) / 32;
  const int threads = warps * 32 < kThreads ? static_cast<int>(warps) * 32 : kThreads;
  return {.blocks = rows, .threads = threads, .shared_bytes = cuda::reduce_bytes(threads)};
}

// The row's largest value for all threads; NaNs are skipped here; the sums that follow contain
// them.
template <typename T>
__device__ double row_largest(std::int64_t classes, const T* row, double* lanes) {
  double largest = kLowest;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    largest = cuda::Larger()(static_cast<double>(row[c]), largest);
  }
  return block_reduce(largest, lanes, cuda::Larger());
}

template <typename T>
__global__ void cross_entropy_kernel(SoftmaxCrossEntropy<T> k, double* losses) {
  double* lanes = shared_memory<double>();
  const std::int64_t r = blockIdx.x, classes = k.classes;
  const T* row = k.logits + r * classes;
  T* grad = k.grad_logits == nullptr ? nullptr : k.grad_logits + r * classes;
  const T largest = static_cast<T>(row_largest(classes, row, lanes));
  double sum = 0;
  double shifted = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    const T d = row[c] - largest;
    const T e = std::exp(d);
    sum += static_cast<double>(e);
    shifted += static_cast<double>(d);
    if (grad != nullptr) grad[c] = e;
  }
  sum = block_sum(sum, lanes);
  shifted = block_sum(shifted, lanes);
  const std::int64_t label = k.labels[r];
  const bool known = label >= 0 && label < classes;
  const SmoothedTarget target(classes, label, k.label_smoothing);
  if (grad != nullptr) {
    const double scale = 1.0 / static_cast<double>(k.rows);
    for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
      const double slope = (static_cast<double>(grad[c]) / sum - target.at(c)) * scale;
      grad[c] = static_cast<T>(known ? slope : kNan);
    }
  }
  if (threadIdx.x != 0) return;
  const double at_label =
      known ? static_cast<double>(row[label]) - static_cast<double>(largest) : kNan;
  losses[r] = target.loss(sum, at_label, shifted);
}

// log(sum of exp(row / temperature)) for all threads.
template <typename T>
__device__ double log_sum_exp(std::int64_t classes, const T* row, double temperature,
                              double* lanes) {
  const double largest = row_largest(classes, row, lanes) / temperature;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    sum += std::exp(static_cast<double>(row[c]) / temperature - largest);
  }
  return largest + std::log(block_sum(sum, lanes));
}

template <typename T>
__global__ void divergence_kernel(SoftmaxDivergence<T> k, double* losses) {
  double* lanes = shared_memory<double>();
  const std::int64_t r = blockIdx.x, classes = k.classes;
  const double temperature = k.temperature;
  const T* row = k.logits + r * classes;
  const T* teacher = k.teacher + r * classes;
  const double row_sum = log_sum_exp(classes, row, temperature, lanes);
  const double teacher_sum = log_sum_exp(classes, teacher, temperature, lanes);
  double divergence = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    const Divergence at(static_cast<double>(teacher[c]) / temperature - teacher_sum,
                        static_cast<double>(row[c]) / temperature - row_sum);
    divergence += at.term;
    if (k.grad_logits == nullptr) continue;
    k.grad_logits[r * classes + c] =
        static_cast<T>(at.slope() * (temperature / static_cast<double>(k.rows)));
  }
  divergence = block_sum(divergence, lanes);
  if (threadIdx.x == 0) losses[r] = divergence;
}

// The place of the row's largest value, for every lane of the warp.
template <typename T>
__device__ std::int64_t warp_argmax(std::int64_t classes, const T* row) {
  std::int64_t best = threadIdx.x % 32;
  if (best >= classes) best = 0;
  for (std::int64_t c = best; c < classes; c += 32) {
    if (is_larger(row[c], row[best])) best = c;
  }
  T value = row[best];
  for (int half = 16; half > 0; half /= 2) {
    const T other = __shfl_xor_sync(kFullWarp, value, half);
    const long long place = __shfl_xor_sync(kFullWarp, static_cast<long long>(best), half);
    const bool equal = !is_larger(other, value) && !is_larger(value, other);
    if (is_larger(other, value) || (equal && place < best)) {
      value = other;
      best = place;
    }
  }
  return best;
}

template <typename T>
__global__ void argmax_kernel(std::int64_t lanes, ArgmaxRows<T> k) {
  if (cuda::element_index() >= lanes) return;
  const std::int64_t r = cuda::element_index() / 32;
  const std::int64_t best = warp_argmax(k.classes, k.logits + r * k.classes);
  if (threadIdx.x % 32 == 0) k.predictions[r] = best;
}

template <typename T>
__global__ void correct_kernel(std::int64_t lanes, AddCorrectRows<T> k) {
  if (cuda::element_index() >= lanes) return;
  const std::int64_t r = cuda::element_index() / 32;
  const std::int64_t best = warp_argmax(k.classes, k.logits + r * k.classes);
  static_assert(sizeof(std::int64_t) == sizeof(unsigned long long));
  if (threadIdx.x % 32 == 0 && best == k.labels[r]) {
    atomicAdd(reinterpret_cast<unsigned long long*>(k.correct), 1ULL);
  }
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const SoftmaxCrossEntropy<T>& k) {
  const Scratch<double> losses(queue, k.rows);
  launch(cross_entropy_kernel<T>, row_shape(k.rows, k.classes), stream_of(queue), k, losses.data());
  cuda::launch_total(queue, k.rows, losses.data(), static_cast<double>(k.rows), 1.0, k.loss);
}

template <typename T>
void compute(const CudaQueue& queue, const SoftmaxDivergence<T>& k) {
  const Scratch<double> losses(queue, k.rows);
  launch(divergence_kernel<T>, row_shape(k.rows, k.classes), stream_of(queue), k, losses.data());
  cuda::launch_total(queue, k.rows, losses.data(), static_cast<double>(k.rows),
                     k.temperature * k.temperature, k.loss);
}

template <typename T>
void compute(const CudaQueue& queue, const ArgmaxRows<T>& k) {
  cuda::launch_elements(queue, argmax_kernel<T>, k.rows * 32, k);
}

template <typename T>
void compute(const CudaQueue& queue, const AddCorrectRows<T>& k) {
  cuda::launch_elements(queue, correct_kernel<T>, k.rows * 32, k);
}

template struct CudaKernels<SoftmaxKernels>;

}  // namespace steelyard::kernels
