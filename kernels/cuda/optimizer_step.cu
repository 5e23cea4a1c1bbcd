#include "kernels/optimizer_step.h"

#include "kernels/cuda/tensor_list.h"

namespace steelyard::kernels {
namespace {

using cuda::kThreads;
using cuda::launch;
using cuda::launch_lists;
using cuda::ListedRange;
using cuda::stream_of;
using cuda::TensorList;

template <typename T>
__global__ void sgd_kernel(TensorList<SgdTensor<T>> list, SgdStep step) {
  const ListedRange at = cuda::listed_range(list);
  const SgdTensor<T>& t = list.tensors[at.tensor];
  const SgdRule<T> rule(step, *t.lr, t.weight_decay);
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) {
    if (t.momentum == nullptr) {
      rule.update(t.grad[i], t.param[i]);
    } else {
      rule.update(t.grad[i], t.momentum[i], t.param[i]);
    }
  }
}

template <typename T>
__global__ void adamw_kernel(TensorList<AdamWTensor<T>> list, AdamWStep step) {
  const ListedRange at = cuda::listed_range(list);
  const AdamWTensor<T>& t = list.tensors[at.tensor];
  const AdamWRule<T> rule(step, t.factors);
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) {
    rule.update(t.grad[i], t.exp_avg[i], t.exp_avg_sq[i], t.param[i]);
  }
}

template <typename T>
__global__ void average_kernel(TensorList<AverageTensor<T>> list) {
  const ListedRange at = cuda::listed_range(list);
  const AverageTensor<T>& t = list.tensors[at.tensor];
  const T weight = static_cast<T>(*t.weight);
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) {
    t.average[i] = moved_average(weight, t.x[i], t.average[i]);
  }
}

template <typename T>
__global__ void squares_kernel(TensorList<ValueTensor<T>> list, double* parts) {
  const ListedRange at = cuda::listed_range(list);
  const T* x = list.tensors[at.tensor].values;
  double sum = 0;
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  sum = cuda::block_sum(sum, cuda::shared_memory<double>());
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <typename T>
__global__ void scale_all_kernel(TensorList<ValueTensor<T>> list, const double* factor) {
  if (*factor == 1) return;
  const ListedRange at = cuda::listed_range(list);
  const T by = static_cast<T>(*factor);
  T* x = list.tensors[at.tensor].values;
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) x[i] *= by;
}

__global__ void clip_factor_kernel(std::int64_t count, const double* sums, double max_norm,
                                   double* norm, double* factor) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += sums[i];
  *norm = std::sqrt(sum);
  *factor = clip_factor_of(*norm, max_norm);
}

}  // namespace

template <typename T>
void sgd_update(const CudaQueue& queue, std::span<const SgdTensor<T>> tensors,
                const SgdStep& step) {
  launch_lists(queue, sgd_kernel<T>, tensors, step);
}

template <typename T>
void adamw_update(const CudaQueue& queue, std::span<const AdamWTensor<T>> tensors,
                  const AdamWStep& step) {
  launch_lists(queue, adamw_kernel<T>, tensors, step);
}

template <typename T>
void move_averages(const CudaQueue& queue, std::span<const AverageTensor<T>> tensors) {
  launch_lists(queue, average_kernel<T>, tensors);
}

template <typename T>
void sum_of_squares(const CudaQueue& queue, std::span<const ValueTensor<T>> tensors, double* sum) {
  std::int64_t blocks = 0;
  for (const ValueTensor<T>& t : tensors) blocks += cuda::sum_blocks(t.size);
  const cuda::Scratch<double> parts(queue, blocks);
  double* next = parts.data();
  cuda::for_each_list(tensors, [&](const TensorList<ValueTensor<T>>& list) {
    launch(squares_kernel<T>,
           {.blocks = list.blocks(),
            .threads = kThreads,
            .shared_bytes = cuda::reduce_bytes(kThreads)},
           stream_of(queue), list, next);
    next += list.blocks();
  });
  cuda::launch_total(queue, blocks, parts.data(), 1.0, 1.0, sum);
}

void clip_factor(const CudaQueue& queue, std::int64_t count, const double* sums, double max_norm,
                 double* norm, double* factor) {
  launch(clip_factor_kernel, {.blocks = 1, .threads = 1}, stream_of(queue), count, sums, max_norm,
         norm, factor);
}

template <typename T>
void scale_all(const CudaQueue& queue, std::span<const ValueTensor<T>> tensors,
               const double* factor) {
  launch_lists(queue, scale_all_kernel<T>, tensors, factor);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void sgd_update(const CudaQueue&, std::span<const SgdTensor<T>>, const SgdStep&);       \
  template void adamw_update(const CudaQueue&, std::span<const AdamWTensor<T>>, const AdamWStep&); \
  template void move_averages(const CudaQueue&, std::span<const AverageTensor<T>>);                \
  template void sum_of_squares(const CudaQueue&, std::span<const ValueTensor<T>>, double*);        \
  template void scale_all(const CudaQueue&, std::span<const ValueTensor<T>>, const double*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
