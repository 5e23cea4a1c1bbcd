#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "tests/kernels/quant_plan/quant_device.h"

namespace steelyard::kernels::test {

bool is_emulated() { return false; }
DeviceType device() { return DeviceType::kCuda; }
void for_each_order(const std::function<void()>& body) { body(); }

}  // namespace steelyard::kernels::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!steelyard::kernels::cuda_is_available()) {
    std::puts("skipped: no CUDA device");
    return 0;
  }
  return RUN_ALL_TESTS();
}
