// How one launch reduces what many blocks leave: the last block to arrive does what a second launch
// would, in an order that does not depend on which block that is.
#pragma once

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

// Whether the running block is the last of `blocks` that count in *arrivals (of CudaQueue), for all
// of its threads, which call together: what the others wrote before can be read. Leaves a zero.
__device__ inline bool is_last_block(std::int64_t blocks, std::uint32_t* arrivals) {
  __threadfence();
  __syncthreads();
  int last = 0;
  if (threadIdx.x == 0) {
    const auto highest = static_cast<unsigned>(blocks - 1);
    last = atomicInc(arrivals, highest) == highest ? 1 : 0;
  }
  last = __syncthreads_or(last);
  if (last != 0) __threadfence();
  return last != 0;
}

}  // namespace steelyard::kernels::cuda
