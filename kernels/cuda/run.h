// run() on a GPU, for the file of each family that emits it.
#pragma once

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/cuda/row_team.h"
#include "steelyard/kernels/cuda/tensor_list.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {
namespace cuda {

template <class K>
__global__ void element_kernel(std::int64_t n, K kernel) {
  const std::int64_t i = element_index();
  if (i < n) kernel(i);
}

template <class K>
__global__ void single_kernel(K kernel) {
  kernel();
}

template <class K>
__global__ void row_kernel(std::int64_t n, Divisor columns, K kernel) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t row = divide(i, columns);
  kernel(row, i - row * columns);
}

template <class K>
__global__ void channel_kernel(std::int64_t n, Divisor channels, K kernel) {
  const std::int64_t i = element_index();
  if (i < n) kernel(i, i - divide(i, channels) * channels);
}

template <class K>
__global__ void layout_kernel(std::int64_t n, Divisor inner, Divisor channels, K kernel) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t plane = divide(i, inner);
  kernel(i, plane - divide(plane, channels) * channels);
}

template <class K, class Tensor>
__global__ void list_kernel(TensorList<Tensor> list, K kernel) {
  if constexpr (requires { kernel.idle(); }) {
    if (kernel.idle()) return;
  }
  const ListedRange at = listed_range(list);
  const auto element = kernel.of(list.tensors[at.tensor]);
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += kThreads) element(i);
}

// parts[block] = the sum of its elements' terms; a single block finishes.
template <class K>
__global__ void sum_kernel(K kernel, double* parts) {
  const std::int64_t begin = blockIdx.x * kSumBlock;
  const std::int64_t end = begin + kSumBlock < kernel.n ? begin + kSumBlock : kernel.n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    sum += static_cast<double>(kernel.term(i));
  }
  sum = block_sum(sum, shared_memory<double>());
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    kernel.finish(sum);
  } else {
    parts[blockIdx.x] = sum;
  }
}

// One block.
template <class K>
__global__ void finish_kernel(K kernel, std::int64_t count, const double* parts) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += parts[i];
  sum = block_sum(sum, shared_memory<double>());
  if (threadIdx.x == 0) kernel.finish(sum);
}

template <class K>
void finish(const CudaQueue& queue, const K& kernel, std::int64_t count, const double* parts) {
  launch(finish_kernel<K>, {1, kThreads, reduce_bytes(kThreads)}, stream_of(queue), kernel, count,
         parts);
}

template <class K>
void run_sum(const CudaQueue& queue, const K& kernel) {
  const std::int64_t blocks = sum_blocks(kernel.n);
  const Scratch<double> parts(queue, blocks);
  launch(sum_kernel<K>, {blocks, kThreads, reduce_bytes(kThreads)}, stream_of(queue), kernel,
         parts.data());
  if (blocks != 1) finish(queue, kernel, blocks, parts.data());
}

// A team without a row joins the values of the last one.
template <class K>
__global__ void __launch_bounds__(kThreads) team_kernel(int lanes, K kernel, double* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / lanes) + thread / lanes;
  const RowTeam team{lanes, thread % lanes, row < kernel.rows, shared_memory<double>()};
  const std::int64_t read = team.has_row ? row : kernel.rows - 1;
  if constexpr (TeamSumKernel<K>) {
    const double sum = kernel.row(read, team);
    if (team.leads()) sums[row] = sum;
  } else {
    kernel.row(read, team);
  }
}

template <class K>
void run_teams(const CudaQueue& queue, const K& kernel) {
  const int lanes = lanes_of_row(kernel.columns);
  const std::int64_t rows_of_block = kThreads / lanes;
  const Scratch<double> sums(queue, TeamSumKernel<K> ? kernel.rows : 0);
  launch(team_kernel<K>,
         {(kernel.rows + rows_of_block - 1) / rows_of_block, kThreads, RowTeam::kSharedBytes},
         stream_of(queue), lanes, kernel, sums.data());
  if constexpr (TeamSumKernel<K>) finish(queue, kernel, kernel.rows, sums.data());
}

// A ChannelSumKernel as sum_columns() takes it.
template <class K>
struct ChannelTerm {
  K kernel;

  __device__ Sums<K::kTerms> operator()(std::int64_t, std::int64_t row, std::int64_t c) const {
    return terms_of(row * kernel.channels + c, c, std::make_integer_sequence<int, K::kTerms>());
  }

 private:
  template <int... n>
  __device__ Sums<K::kTerms> terms_of(std::int64_t i, std::int64_t c,
                                      std::integer_sequence<int, n...>) const {
    return {{static_cast<double>(kernel.template term<n>(i, c))...}};
  }
};
template <class K>
struct FinishChannel {
  K kernel;

  __device__ void operator()(const RowChunks&, std::int64_t c,
                             const double (&sums)[K::kTerms]) const {
    kernel.finish(c, sums);
  }
};

template <class K>
void run_by_kind(const CudaQueue& queue, const K& kernel) {
  if constexpr (ElementKernel<K>) {
    launch_elements(queue, element_kernel<K>, kernel.n, kernel);
  } else if constexpr (SingleKernel<K>) {
    launch(single_kernel<K>, {1, 1}, stream_of(queue), kernel);
  } else if constexpr (RowKernel<K>) {
    launch_elements(queue, row_kernel<K>, kernel.rows * kernel.columns, Divisor(kernel.columns),
                    kernel);
  } else if constexpr (ChannelKernel<K>) {
    launch_elements(queue, channel_kernel<K>, kernel.rows * kernel.channels,
                    Divisor(kernel.channels), kernel);
  } else if constexpr (LayoutKernel<K>) {
    launch_elements(queue, layout_kernel<K>, kernel.layout.size(), Divisor(kernel.layout.inner),
                    Divisor(kernel.layout.channels), kernel);
  } else if constexpr (ListKernel<K>) {
    for_each_list(kernel.tensors, [&](const auto& list) {
      using List = std::remove_cvref_t<decltype(list)>;
      static_assert(sizeof(List) <= 4000);
      launch(list_kernel<K, typename List::Element>, {list.blocks(), kThreads}, stream_of(queue),
             list, kernel);
    });
  } else if constexpr (SumKernel<K>) {
    run_sum(queue, kernel);
  } else if constexpr (ChannelSumKernel<K>) {
    sum_columns<K::kTerms>(queue, make_row_chunks(1, kernel.rows, kernel.channels),
                           ChannelTerm<K>{kernel}, FinishChannel<K>{kernel});
  } else if constexpr (TeamKernel<K>) {
    run_teams(queue, kernel);
  } else {
    compute(queue, kernel);
  }
}

}  // namespace cuda

template <class K>
void run(const CudaQueue& queue, const K& kernel) {
  if (kernel_watcher == nullptr) return cuda::run_by_kind(queue, kernel);
  cuda_synchronize(queue);
  run_watched(kernel, [&] {
    cuda::run_by_kind(queue, kernel);
    cuda_synchronize(queue);
  });
}

}  // namespace steelyard::kernels
