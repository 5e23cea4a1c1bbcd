// What recurrent networks have in common: steps, their products, and the first state.
#pragma once

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard::ops {

// Elements of the steps before step s of a tensor whose first dimension is that of steps.
template <typename T>
T* step_of(const Tensor& tensor, std::int64_t s) {
  return tensor.data<T>() + s * tensor.size() / tensor.dim(0);
}

template <typename T>
void multiply(const Tensor& device_of, const kernels::MatmulShape& shape, const T* a, const T* b,
              T* c) {
  run(device_of.device(), kernels::Matmul<T>{.shape = shape, .a = a, .b = b, .c = c});
}

// One row for each sample. `op`: for messages.
inline Tensor repeated(const char* op, const Tensor& row, std::int64_t batch) {
  return gathered(op, row, {.shape = {batch, row.dim(0)}, .first = 0, .strides = {0, 1}});
}

}  // namespace steelyard::ops
