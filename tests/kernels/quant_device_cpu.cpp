#include <cstdlib>
#include <cstring>

#include "kernels/backend.h"
#include "tests/kernels/quant_device.h"

namespace steelyard::kernels::test {

bool is_emulated() { return false; }
DeviceType device() { return DeviceType::kCpu; }
void* allocate(std::size_t bytes) { return std::malloc(bytes); }
void release(void* memory) { std::free(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void for_each_order(const std::function<void()>& body) {
  const int threads = num_threads();
  for (const int count : {1, 3}) {
    set_num_threads(count);
    body();
  }
  set_num_threads(threads);
}

}  // namespace steelyard::kernels::test
