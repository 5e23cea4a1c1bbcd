// Which GPUs nccl_test.cpp has where there are real ones.
#include "steelyard/framework/tensor/device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard::testing {

bool has_gpus(int ranks);
Device gpu_of_rank(int rank);

bool has_gpus(int ranks) { return kernels::cuda_device_count() >= ranks; }
Device gpu_of_rank(int rank) { return Device::cuda(rank); }

}  // namespace steelyard::testing
