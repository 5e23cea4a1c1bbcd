// Zip archives, written by the format's description alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::testing {

// The CRC-32 of zlib, bit by bit.
inline std::uint32_t crc32_of(const std::string& bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  return ~crc;
}

// A file of an archive; `data` are the bytes that are there, which deflate has packed with
// method 8.
struct ZippedFile {
  std::string name;
  std::string data;
  std::uint64_t method = 0;
  std::uint64_t size = data.size();  // unpacked
  std::uint32_t checksum = crc32_of(data);
};

inline std::string zip_archive(const std::vector<ZippedFile>& files) {
  const auto number = [](std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value);
    return text;
  };
  std::string archive, list;
  for (const auto& [name, data, method, size, checksum] : files) {
    const std::string about = number(20, 2) + number(0, 2) + number(method, 2) + number(0, 4) +
                              number(checksum, 4) + number(data.size(), 4) + number(size, 4) +
                              number(name.size(), 2) + number(0, 2);
    list += std::string("PK\x01\x02") + number(20, 2) + about + number(0, 10) +
            number(archive.size(), 4) + name;
    archive += std::string("PK\x03\x04") + about + name + data;
  }
  return archive + list + std::string("PK\x05\x06") + number(0, 4) + number(files.size(), 2) +
         number(files.size(), 2) + number(list.size(), 4) + number(archive.size(), 4) +
         number(0, 2);
}

inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<ZippedFile> stored;
  for (const auto& [name, data] : files) stored.push_back({name, data});
  return zip_archive(stored);
}

}  // namespace steelyard::testing
