#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::kernels::test {

bool is_emulated() { return true; }
DeviceType device() { return DeviceType::kCuda; }
void for_each_order(const std::function<void()>& body) { emulation::for_each_order(body); }

}  // namespace steelyard::kernels::test
