#include <cstdint>

#include "steelyard/framework/data/images/decoders.h"

namespace steelyard {
namespace {

// Numbers of a TIFF block; 0 beyond its end.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes) {}

  bool valid() const {
    return (bytes_.starts_with("II") || bytes_.starts_with("MM")) && u16(2) == 42;
  }
  std::uint32_t u16(std::size_t at) const {
    return little() ? u8(at + 1) << 8 | u8(at) : u8(at) << 8 | u8(at + 1);
  }
  std::uint32_t u32(std::size_t at) const {
    return little() ? u16(at + 2) << 16 | u16(at) : u16(at) << 16 | u16(at + 2);
  }

 private:
  bool little() const { return bytes_.starts_with("II"); }
  std::uint32_t u8(std::size_t at) const {
    return at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : 0;
  }

  std::string_view bytes_;
};

}  // namespace

int exif_orientation(std::string_view tiff) {
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::size_t kEntryBytes = 12;
  const Tiff block(tiff);
  if (!block.valid()) return 1;
  const std::size_t directory = block.u32(4);
  if (directory >= tiff.size()) return 1;
  const std::uint32_t entries = block.u16(directory);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (block.u16(entry) != kOrientation) continue;
    const std::uint32_t value = block.u16(entry + 8);
    const bool valid = block.u16(entry + 2) == kShort && value >= 1 && value <= 8;
    return valid ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace steelyard
