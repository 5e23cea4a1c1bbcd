// SHA-256 checksums (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace steelyard {

class Sha256 {
 public:
  // `instructions`: those of the processor for it are used where it has them.
  explicit Sha256(bool instructions = true) : instructions_(instructions) {}

  void update(const void* data, std::size_t bytes);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  // The 64 lower-case hex digits of everything so far; the object starts anew.
  std::string hex();

 private:
  static constexpr std::size_t kBlockBytes = 64;
  static constexpr std::array<std::uint32_t, 8> kBeginning{0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                                           0xa54ff53a, 0x510e527f, 0x9b05688c,
                                                           0x1f83d9ab, 0x5be0cd19};

  bool instructions_;
  std::array<std::uint32_t, 8> state_ = kBeginning;
  std::array<unsigned char, kBlockBytes> rest_ = {};  // of the last block, which is not full
  std::uint64_t bytes_ = 0;
};

std::string sha256_of(std::string_view bytes);
// Reads the file in pieces; throws InputError when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace steelyard
