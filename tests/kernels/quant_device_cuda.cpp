#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_memory.h"
#include "tests/kernels/quant_device.h"

namespace steelyard::kernels::test {

bool is_emulated() { return false; }
DeviceType device() { return DeviceType::kCuda; }
void* allocate(std::size_t bytes) { return cuda_allocate(bytes); }
void release(void* memory) { cuda_release(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) cuda_copy_to_device({}, to, from, bytes);
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) cuda_copy_to_host({}, to, from, bytes);
}
void for_each_order(const std::function<void()>& body) { body(); }

}  // namespace steelyard::kernels::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!steelyard::kernels::cuda_is_available()) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return RUN_ALL_TESTS();
}
