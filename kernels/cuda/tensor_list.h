// Lists of tensors that one launch works on: a block has part of one of them.
#pragma once

#include <span>

#include "steelyard/kernels/cuda/block_sum.h"

namespace steelyard::kernels::cuda {

// Part of the launch's parameters, of which every device takes 4 KiB and those of CUDA 12.1
// 32,764 bytes. 128 are left for the kernel's own.
template <typename Tensor>
struct TensorList {
  using Element = Tensor;
  static constexpr int kFitting = (4096 - 128) / (sizeof(Tensor) + sizeof(std::int64_t));
  static constexpr int kMost = kFitting < 64 ? kFitting : 64;

  int count = 0;
  std::int64_t first_block[kMost + 1] = {};  // of each tensor; of the end
  Tensor tensors[kMost] = {};

  bool is_full() const { return count == kMost; }
  std::int64_t blocks() const { return first_block[count]; }
  void add(const Tensor& tensor) {
    tensors[count] = tensor;
    first_block[count + 1] = first_block[count] + sum_blocks(tensor.size);
    ++count;
  }
  template <typename F>
  void each_used(const F& f) const {
    for (int i = 0; i < count; ++i) f(tensors[i]);
  }
};

// The running block's elements [begin, end) of tensors[tensor].
struct ListedRange {
  int tensor;
  std::int64_t begin;
  std::int64_t end;
};

template <typename Tensor>
__device__ inline ListedRange listed_range(const TensorList<Tensor>& list) {
  const std::int64_t block = blockIdx.x;
  int low = 0;
  int high = list.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (list.first_block[middle] <= block ? low : high) = middle;
  }
  const std::int64_t begin = (block - list.first_block[low]) * kSumBlock;
  const std::int64_t left = list.tensors[low].size - begin;
  return {low, begin, begin + (left < kSumBlock ? left : kSumBlock)};
}

// Calls use(list) with all tensors that are not empty, in few lists.
template <typename Tensor, typename F>
void for_each_list(std::span<const Tensor> tensors, F&& use) {
  static_assert(sizeof(TensorList<Tensor>) <= 32000);
  TensorList<Tensor> list;
  for (const Tensor& tensor : tensors) {
    if (tensor.size == 0) continue;
    list.add(tensor);
    if (!list.is_full()) continue;
    use(list);
    list.count = 0;
  }
  if (list.count > 0) use(list);
}

}  // namespace steelyard::kernels::cuda
