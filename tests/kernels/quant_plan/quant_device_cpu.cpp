#include "steelyard/kernels/backend.h"
#include "tests/kernels/quant_plan/quant_device.h"

namespace steelyard::kernels::test {

bool is_emulated() { return false; }
DeviceType device() { return DeviceType::kCpu; }

void for_each_order(const std::function<void()>& body) {
  const int threads = num_threads();
  for (const int count : {1, 3}) {
    set_num_threads(count);
    body();
  }
  set_num_threads(threads);
}

}  // namespace steelyard::kernels::test
