// Runs kernels on the device of their tensors.
#pragma once

#include <string_view>
#include <utility>

#include "steelyard/framework/tensor/device.h"
#include "steelyard/kernels/cuda_queue.h"
#include "steelyard/kernels/run.h"

namespace steelyard {

// The compute stream of a GPU, with scratch memory of its allocator. Everything that the engine
// does on a GPU is queued here, in order.
const kernels::CudaQueue& cuda_queue(Device device);

// The precision of float32 matrix products on a device while this object exists: "float32", "tf32"
// or "bf16" (the process's default is float32). Throws std::invalid_argument on other words and for
// tf32 on the CPU, which has none.
class MatmulPrecisionGuard {
 public:
  MatmulPrecisionGuard(Device device, std::string_view precision);
  ~MatmulPrecisionGuard();
  MatmulPrecisionGuard(const MatmulPrecisionGuard&) = delete;
  MatmulPrecisionGuard& operator=(const MatmulPrecisionGuard&) = delete;

 private:
  kernels::MatmulPrecision& precision_;
  kernels::MatmulPrecision previous_;
};

// Runs a kernel on the CPU or on a GPU's queue.
template <class K>
void run(Device device, const K& kernel) {
  if (device.kind == Device::Kind::kCpu) return kernels::run(kernel);
  kernels::run(cuda_queue(device), kernel);
}

}  // namespace steelyard
