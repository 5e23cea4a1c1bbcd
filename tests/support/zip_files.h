// Zip archives of stored files, written by the format's description alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::testing {

// Checksums are 0: readers check them for packed files only.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files) {
  const auto number = [](std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value);
    return text;
  };
  std::string archive, list;
  for (const auto& [name, data] : files) {
    const std::string sizes =
        number(data.size(), 4) + number(data.size(), 4) + number(name.size(), 2) + number(0, 2);
    list += std::string("PK\x01\x02") + number(20, 2) + number(20, 2) + number(0, 12) + sizes +
            number(0, 10) + number(archive.size(), 4) + name;
    archive += std::string("PK\x03\x04") + number(20, 2) + number(0, 12) + sizes + name + data;
  }
  return archive + list + std::string("PK\x05\x06") + number(0, 4) + number(files.size(), 2) +
         number(files.size(), 2) + number(list.size(), 4) + number(archive.size(), 4) +
         number(0, 2);
}

}  // namespace steelyard::testing
