// A loader's batches on the device that trains.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/tensor/device.h"
#include "steelyard/kernels/cuda_queue.h"

namespace steelyard {

// On a GPU the next batch is copied from pinned memory while this one is in use; on the CPU batches
// are handed on.
class DeviceBatches {
 public:
  // The loader outlives this.
  DeviceBatches(DataLoader& loader, Device device);
  ~DeviceBatches();
  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;

  // As the loader's.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // The next batch. On a GPU its tensors are written again by the next call: work on them is queued
  // before that. Throws what the loader throws.
  std::optional<Batch> next();

 private:
  // Pinned memory and the tensors that are copied from it, on a stream of their own: to use the
  // memory again the host waits for the copy of the batch before the last, no more.
  struct Stage {
    kernels::CudaQueue copies;
    void* pinned = nullptr;
    std::size_t bytes = 0;
    std::optional<Batch> batch;
  };
  void stage(Stage& stage);

  DataLoader& loader_;
  const Device device_;
  std::array<Stage, 2> stages_;
  std::size_t next_ = 0;  // the stage of the batch that next() returns
};

}  // namespace steelyard
