// Elements of two operands that broadcast, pair by pair.
#pragma once

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/tensor/on_device.h"

namespace steelyard::ops {

// F::of(a, b) of each pair. Throws std::invalid_argument, naming `op`, where the shapes do not
// broadcast.
template <class F>
Tensor combine(const char* op, const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::empty(broadcast_shape(op, a.shape(), b.shape()), a.dtype(), a.device());
  visit_floating(a.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    run(y.device(), kernels::Combine<T, F>{.n = y.size(),
                                           .a = a.data<T>(),
                                           .at_a = broadcast_index(op, a.shape(), y.shape()),
                                           .b = b.data<T>(),
                                           .at_b = broadcast_index(op, b.shape(), y.shape()),
                                           .y = y.data<T>()});
  });
  return y;
}

}  // namespace steelyard::ops
