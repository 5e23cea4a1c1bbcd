#include "steelyard/qat/quantizers/plan_run.h"

#include "steelyard/framework/tensor/on_device.h"

namespace steelyard::qat {

kernels::QuantArray array_of_codes(const Tensor& codes) {
  return {static_cast<std::byte*>(codes.raw()), codes.size()};
}

void run_plan(const kernels::QuantDescriptor& descriptor, Device device,
              const kernels::QuantArrays& arrays) {
  const bool on_cpu = device.kind == Device::Kind::kCpu;
  const auto plan = kernels::QuantPlan::select(
      descriptor, on_cpu ? kernels::DeviceType::kCpu : kernels::DeviceType::kCuda);
  const Tensor workspace =
      Tensor::empty({static_cast<std::int64_t>(plan.workspace_bytes())}, DType::kU8, device);
  plan.run(on_cpu ? nullptr : cuda_queue(device).stream,
           {static_cast<std::byte*>(workspace.raw()), plan.workspace_bytes()}, arrays);
}

}  // namespace steelyard::qat
