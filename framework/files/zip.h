// What is in a zip archive.
// Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3 (with Zip64).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/byte_range.h"

namespace steelyard {

inline constexpr std::string_view kZipMagic{"PK\x03\x04", 4};

// A file as an archive's list describes it.
struct ZipMember {
  std::string name = {};
  std::uint64_t method = 0;
  std::uint64_t checksum = 0;  // CRC-32 of its bytes, unpacked
  std::uint64_t packed = 0;
  std::uint64_t size = 0;    // unpacked
  std::uint64_t header = 0;  // where it begins
  std::uint64_t begin = 0;   // and its bytes after that
  std::shared_ptr<const ByteRange> opened = {};
};

// The files in an archive, each of which is looked at when it is opened.
class ZipFile {
 public:
  // Reads the list of files. Throws InputError that names the archive for methods other than stored
  // and deflate, encryption, two files of one name, files that overlap and a damaged list. The
  // files that are opened may take `most_unpacked` bytes in all when they are unpacked.
  ZipFile(std::shared_ptr<const InputFile> archive, std::uint64_t most_unpacked);
  // As much as half of the machine's memory.
  explicit ZipFile(std::shared_ptr<const InputFile> archive);

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return members_.contains(name); }
  // The size of a file that is there, unpacked.
  std::uint64_t size(const std::string& name) const { return members_.at(name).size; }
  // A file that is there: read from the archive where it is stored, unpacked to memory where it is
  // packed, once. Throws InputError that begins with `name` where its bytes are not those of its
  // checksum.
  std::shared_ptr<const ByteRange> open(const std::string& name);

 private:
  std::shared_ptr<const ByteRange> opened(const ZipMember& member);

  std::shared_ptr<const InputFile> archive_;
  std::uint64_t unpacked_left_;
  std::map<std::string, ZipMember> members_;
};

}  // namespace steelyard
