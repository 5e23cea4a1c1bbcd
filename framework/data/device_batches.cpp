#include "steelyard/framework/data/device_batches.h"

#include <cstring>
#include <exception>
#include <utility>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard {
namespace {

// A tensor like `source` on the device, the one of the last time where it fits.
Tensor like(const Tensor& source, const Tensor& before, Device device) {
  if (before.defined() && before.shape() == source.shape()) return before;
  return Tensor::empty(source.shape(), source.dtype(), device);
}

}  // namespace

DeviceBatches::DeviceBatches(DataLoader& loader, Device device) : loader_(loader), device_(device) {
  if (device.kind == Device::Kind::kCpu) return;
  cuda_queue(device);  // selects the device
  for (Stage& stage : stages_) stage.copies.stream = kernels::cuda_new_stream();
}

DeviceBatches::~DeviceBatches() {
  if (device_.kind == Device::Kind::kCpu) return;
  for (Stage& stage : stages_) {
    try {
      kernels::cuda_synchronize(stage.copies);
    } catch (const std::exception&) {
      // A failed GPU stays failed: the exception that is under way, or the next call, says so.
    }
    kernels::cuda_release_pinned(stage.pinned);
    kernels::cuda_release_stream(stage.copies.stream);
  }
}

void DeviceBatches::start(std::int64_t epoch, std::int64_t first_batch) {
  loader_.start(epoch, first_batch);
  if (device_.kind == Device::Kind::kCpu) return;
  next_ = 0;
  stage(stages_[0]);
}

std::optional<Batch> DeviceBatches::next() {
  if (device_.kind == Device::Kind::kCpu) return loader_.next();
  const std::optional<Batch> batch = stages_[next_].batch;
  if (!batch) return std::nullopt;
  kernels::cuda_wait_for(cuda_queue(device_), stages_[next_].copies);
  next_ = 1 - next_;
  stage(stages_[next_]);
  return batch;
}

// Begins to copy the loader's next batch. Whatever was queued until now may still use the stage's
// tensors: the copy waits for it, and runs at the same time as what is queued later.
void DeviceBatches::stage(Stage& stage) {
  const std::optional<Batch> source = loader_.next();
  if (!source) {
    stage.batch.reset();
    return;
  }
  kernels::cuda_synchronize(stage.copies);  // the pinned memory was read
  const auto input_bytes = static_cast<std::size_t>(source->inputs.bytes());
  const auto target_bytes = static_cast<std::size_t>(source->targets.bytes());
  if (stage.bytes < input_bytes + target_bytes) {
    kernels::cuda_release_pinned(std::exchange(stage.pinned, nullptr));
    stage.bytes = input_bytes + target_bytes;
    stage.pinned = kernels::cuda_allocate_pinned(stage.bytes);
    if (stage.pinned == nullptr) {
      throw OutOfMemory("out of pinned memory: asked for " + std::to_string(stage.bytes) +
                        " bytes to stage a batch");
    }
  }
  auto* pinned = static_cast<std::byte*>(stage.pinned);
  std::memcpy(pinned, source->inputs.raw(), input_bytes);
  if (target_bytes > 0) std::memcpy(pinned + input_bytes, source->targets.raw(), target_bytes);
  const Batch before = stage.batch.value_or(Batch{});
  stage.batch = Batch{like(source->inputs, before.inputs, device_),
                      like(source->targets, before.targets, device_), source->index};
  kernels::cuda_wait_for(stage.copies, cuda_queue(device_));
  kernels::cuda_copy_to_device(stage.copies, stage.batch->inputs.raw(), pinned, input_bytes);
  if (target_bytes == 0) return;  // of inputs alone
  kernels::cuda_copy_to_device(stage.copies, stage.batch->targets.raw(), pinned + input_bytes,
                               target_bytes);
}

}  // namespace steelyard
