// Messages of NCCL between GPUs.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/comm/gpu_sums.h"

namespace steelyard::comm {

// "NCCL 2.28.3"; empty in a build without NCCL.
std::string nccl_name();

// Joins the GPUs of all ranks, each with its own; called by all of them. Throws InputError in a
// build without NCCL and std::runtime_error with NCCL's words.
std::unique_ptr<GpuTransport> nccl_transport(Communicator& ranks, Device device);

}  // namespace steelyard::comm
