// SHA-256 checksums (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

class Sha256 {
 public:
  // `instructions`: those of the processor for it are used where it has them.
  explicit Sha256(bool instructions = true) : instructions_(instructions) {}

  void update(const void* data, std::size_t bytes);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  // Both at once, of equally many bytes, a multiple of 64; so was everything before.
  static void update_two(Sha256& a, std::string_view of_a, Sha256& b, std::string_view of_b);
  // The 64 lower-case hex digits of everything so far; the object starts anew.
  std::string hex();

  static constexpr std::size_t kBlockBytes = 64;

 private:
  static constexpr std::array<std::uint32_t, 8> kBeginning{0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                                           0xa54ff53a, 0x510e527f, 0x9b05688c,
                                                           0x1f83d9ab, 0x5be0cd19};

  bool instructions_;
  std::array<std::uint32_t, 8> state_ = kBeginning;
  std::array<unsigned char, kBlockBytes> rest_ = {};  // of the last block, which is not full
  std::uint64_t bytes_ = 0;
};

std::string sha256_of(std::string_view bytes);
// The digest of each message, on so many threads, each of which takes two messages at a time where
// the processor has instructions for that. prepare(i), which must not throw, runs before the bytes
// of message i are read, on the thread that reads them.
std::vector<std::string> sha256_of_each(std::span<const std::string_view> messages, int threads,
                                        const std::function<void(std::size_t)>& prepare);
// Reads the file in pieces; throws InputError when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace steelyard
