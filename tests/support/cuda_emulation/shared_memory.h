// The shared memory of the one block that runs: exactly as large as asked for, between guard bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace steelyard::emulation {

class SharedMemory {
 public:
  // Sets the size and fills the memory and its guards with poison. AddressSanitizer, where the
  // build has it, reports every access to the guards; otherwise they read as poison.
  void reset(std::size_t bytes, unsigned char poison);
  // Aligned to 16 bytes and, on purpose, to no more.
  std::byte* data() const { return data_; }
  // Empty, or which guard byte a block has overwritten (with anything but the poison itself).
  std::string damage() const;

 private:
  std::vector<std::byte> storage_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::byte poison_{};
};

}  // namespace steelyard::emulation
