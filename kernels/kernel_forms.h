// More of the forms of kernels that kernels/run.h explains.
#pragma once

#include "kernels/layout.h"
#include "kernels/run.h"

namespace steelyard::kernels {

// kernel(i, channel) for every element i of a layout.
template <class K>
concept LayoutKernel = requires(const K& kernel, std::int64_t i) {
  kernel.layout.channels;
  kernel(i, i);
};

}  // namespace steelyard::kernels
