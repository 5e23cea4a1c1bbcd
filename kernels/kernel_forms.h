// More of the forms of kernels that kernels/run.h explains.
#pragma once

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// kernel(i, channel) for every element i of a layout, K::kGrain of them at least to a thread.
template <class K>
concept LayoutKernel = requires(const K& kernel, std::int64_t i) {
  kernel.layout.channels;
  K::kGrain;
  kernel(i, i);
};

// kernel.of(tensor)(i) for every element of every tensor of a list; where there is kernel.idle()
// and it is true, for none.
template <class K>
concept ListKernel = requires(const K& kernel) {
  kernel.of(kernel.tensors[0]);
};

}  // namespace steelyard::kernels
