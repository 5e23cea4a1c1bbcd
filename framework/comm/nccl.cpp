#include "steelyard/framework/comm/nccl.h"

#include <nccl.h>

#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <stdexcept>

#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard::comm {
namespace {

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result));
}

ncclUniqueId shared_id(Communicator& ranks) {
  ncclUniqueId id{};
  if (ranks.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ranks.broadcast(std::as_writable_bytes(std::span(id.internal)));
  return id;
}

class NcclTransport : public GpuTransport {
 public:
  NcclTransport(Communicator& ranks, Device device)
      : rank_(ranks.rank()), size_(ranks.size()), device_(device) {
    kernels::cuda_select_device(device.index);
    check(ncclCommInitRank(&comm_, size_, shared_id(ranks), rank_), "ncclCommInitRank");
    queue_.stream = kernels::cuda_new_stream();
  }
  // What is queued may wait for ranks that have left.
  ~NcclTransport() override {
    interrupt();
    kernels::cuda_release_stream(queue_.stream);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const kernels::CudaQueue& queue() const override { return queue_; }

  void exchange(int peer, std::span<const std::byte> send, std::span<std::byte> receive) override {
    check(ncclGroupStart(), "ncclGroupStart");
    if (!send.empty()) {
      check(ncclSend(send.data(), send.size(), ncclInt8, peer, live(), stream()), "ncclSend");
    }
    if (!receive.empty()) {
      check(ncclRecv(receive.data(), receive.size(), ncclInt8, peer, live(), stream()), "ncclRecv");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }
  void sum_in_any_order(void* data, std::size_t count, DType dtype) override {
    const ncclDataType_t type = dtype == DType::kF64 ? ncclFloat64 : ncclFloat32;
    check(ncclAllReduce(data, data, count, type, ncclSum, live(), stream()), "ncclAllReduce");
  }

  std::byte* scratch(int which, std::size_t bytes) override {
    std::unique_ptr<Storage>& memory = scratch_[static_cast<std::size_t>(which)];
    if (!memory || memory->bytes() < bytes) {
      kernels::cuda_synchronize(queue_);  // with what is replaced
      memory = std::make_unique<Storage>(bytes, device_);
    }
    return static_cast<std::byte*>(memory->data());
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) kernels::cuda_copy_on_device(queue_, to, from, bytes);
  }

  std::string problem() override {
    const std::lock_guard lock(mutex_);
    ncclResult_t result = ncclSuccess;
    if (interrupted_ || ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return "";
    if (result == ncclSuccess || result == ncclInProgress) return "";
    return std::string("NCCL: ") + ncclGetErrorString(result);
  }
  void interrupt() override {
    const std::lock_guard lock(mutex_);
    if (!interrupted_.exchange(true)) ncclCommAbort(comm_);
  }
  void finish() override {
    kernels::cuda_synchronize(queue_);
    const std::lock_guard lock(mutex_);
    if (!interrupted_.exchange(true)) check(ncclCommDestroy(comm_), "ncclCommDestroy");
  }

 private:
  ncclComm_t live() const {
    if (interrupted_) throw RankLost("the connections between the GPUs were ended");
    return comm_;
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(queue_.stream); }

  const int rank_, size_;
  const Device device_;
  ncclComm_t comm_ = nullptr;
  kernels::CudaQueue queue_;
  std::array<std::unique_ptr<Storage>, 2> scratch_;
  std::mutex mutex_;  // held by the thread that asks comm_ for errors and by the one that ends it
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

std::string nccl_name() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "NCCL";
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

std::unique_ptr<GpuTransport> nccl_transport(Communicator& ranks, Device device) {
  return std::make_unique<NcclTransport>(ranks, device);
}

}  // namespace steelyard::comm
