// Guard bytes on both sides of a block's shared memory.
#include "tests/support/cuda_emulation/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/support/cuda_emulation/sanitizer.h"

namespace steelyard::emulation {
namespace {

constexpr std::size_t kGuardBytes = 1024;
constexpr std::size_t kAlignment = 32;

}  // namespace

void SharedMemory::reset(std::size_t bytes, unsigned char poison) {
  allow_access(storage_.data(), storage_.size());
  const std::size_t needed = bytes + 2 * kGuardBytes + 2 * kAlignment;
  if (storage_.size() < needed) storage_.resize(needed);
  const auto start = reinterpret_cast<std::uintptr_t>(storage_.data());
  const std::size_t padding = (kAlignment - start % kAlignment) % kAlignment + kAlignment / 2;
  data_ = storage_.data() + padding + kGuardBytes;
  bytes_ = bytes;
  poison_ = std::byte{poison};
  std::memset(data_ - kGuardBytes, poison, bytes + 2 * kGuardBytes);
  forbid_access(data_ - kGuardBytes, kGuardBytes);
  forbid_access(data_ + bytes, kGuardBytes);
}

std::string SharedMemory::damage() const {
  if (kAddressSanitizer) return {};  // it has already reported any access
  for (const std::byte* guard : {data_ + bytes_, data_ - kGuardBytes}) {
    // Every byte is like the one before it: one fast comparison instead of a loop per block.
    if (*guard == poison_ && std::memcmp(guard, guard + 1, kGuardBytes - 1) == 0) continue;
    const std::byte* at =
        std::find_if(guard, guard + kGuardBytes, [this](std::byte b) { return b != poison_; });
    return "wrote outside its shared memory: byte " + std::to_string(at - data_) + " of " +
           std::to_string(bytes_);
  }
  return {};
}

}  // namespace steelyard::emulation
