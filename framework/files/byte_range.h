// Bytes in a file, or unpacked from one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "steelyard/framework/files/files.h"

namespace steelyard {

// Thread-safe.
class ByteRange {
 public:
  virtual ~ByteRange() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `into`; [offset, offset + bytes) lies in the range. Throws InputError.
  virtual void read(std::uint64_t offset, void* into, std::uint64_t bytes) const = 0;
};

// [begin, begin + size) of a file, read where it is asked for.
std::shared_ptr<const ByteRange> range_of_file(std::shared_ptr<const InputFile> file,
                                               std::uint64_t begin, std::uint64_t size);
std::shared_ptr<const ByteRange> range_in_memory(std::string bytes);

}  // namespace steelyard
