// Sums of columns: the gradient of a bias.
#pragma once

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::ops {

// [C] of x [..., C], whose elements are T.
template <typename T>
Tensor column_sums(const Tensor& x) {
  const std::int64_t columns = x.dim(-1);
  Tensor sums = Tensor::empty({columns}, x.dtype(), x.device());
  run(x.device(), kernels::ColumnSums<T>{.rows = columns == 0 ? 0 : x.size() / columns,
                                         .channels = columns,
                                         .x = x.data<T>(),
                                         .sums = sums.data<T>()});
  return sums;
}

}  // namespace steelyard::ops
