#include "steelyard/framework/comm/gpu_sums.h"

#include <utility>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::comm {
namespace {

// Fewer messages than between hosts: each costs a launch, whatever its size.
constexpr std::size_t kGpuPieceBytes = std::size_t{32} << 20;

template <typename T>
std::vector<std::span<T>> arrays_of(const std::vector<Tensor>& tensors) {
  std::vector<std::span<T>> arrays;
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype() != DTypeOf<T>::value) continue;
    arrays.emplace_back(tensor.data<T>(), static_cast<std::size_t>(tensor.size()));
  }
  return arrays;
}

struct AddOnGpu {
  const kernels::CudaQueue& queue;
  template <typename T>
  void operator()(std::span<T> mine, std::span<const T> theirs) const {
    if (mine.empty()) return;
    kernels::run(queue, kernels::Add<T>{static_cast<std::int64_t>(mine.size()), mine.data(),
                                        theirs.data(), mine.data()});
  }
};

}  // namespace

GpuReducer::GpuReducer(std::unique_ptr<GpuTransport> transport, Device device, GpuSums sums)
    : transport_(std::move(transport)),
      collectives_(*transport_, kGpuPieceBytes),
      device_(device),
      sums_(sums) {}

GpuReducer::~GpuReducer() = default;

void GpuReducer::start(const std::vector<Tensor>& tensors) {
  kernels::cuda_wait_for(transport_->queue(), cuda_queue(device_));
  started_.insert(started_.end(), tensors.begin(), tensors.end());
  if (sums_ == GpuSums::kFast) {
    for (const Tensor& tensor : tensors) {
      const auto count = static_cast<std::size_t>(tensor.size());
      if (count > 0) transport_->sum_in_any_order(tensor.raw(), count, tensor.dtype());
    }
    return;
  }
  const AddOnGpu add{transport_->queue()};
  collectives_.all_reduce(arrays_of<float>(tensors), add);
  collectives_.all_reduce(arrays_of<double>(tensors), add);
}

void GpuReducer::wait() {
  kernels::cuda_wait_for(cuda_queue(device_), transport_->queue());
  started_.clear();
}

std::string GpuReducer::check() {
  std::string problem = transport_->problem();
  if (!problem.empty()) transport_->interrupt();
  return problem;
}

void GpuReducer::finish() { transport_->finish(); }

}  // namespace steelyard::comm
