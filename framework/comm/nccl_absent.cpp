// framework/comm/nccl.h in a build without NCCL.
#include "steelyard/framework/comm/nccl.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::comm {

std::string nccl_name() { return ""; }
std::unique_ptr<GpuTransport> nccl_transport(Communicator&, Device) {
  throw InputError("this program was built without NCCL");
}

}  // namespace steelyard::comm
