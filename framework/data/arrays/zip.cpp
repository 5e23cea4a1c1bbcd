#include "steelyard/framework/data/arrays/zip.h"

#include <zlib.h>

#include <algorithm>

#include "steelyard/framework/error.h"
#include "steelyard/framework/memory_error.h"

namespace steelyard {
namespace {

constexpr std::uint32_t kAllOnes = 0xFFFFFFFF;  // a number that is in the Zip64 part

// Little-endian numbers of a piece of the archive.
class Piece {
 public:
  Piece(const InputFile& file, std::uint64_t begin, std::uint64_t size) : bytes_(size, '\0') {
    file.read(begin, bytes_.data(), size);
  }

  std::uint64_t number(std::size_t at, std::size_t bytes) const {
    if (bytes_.size() < bytes || at > bytes_.size() - bytes) throw InputError("a part is cut off");
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes_[at + i])} << (8 * i);
    }
    return value;
  }
  std::uint64_t u16(std::size_t at) const { return number(at, 2); }
  std::uint64_t u32(std::size_t at) const { return number(at, 4); }
  std::uint64_t u64(std::size_t at) const { return number(at, 8); }
  std::string text(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) throw InputError("a part is cut off");
    return bytes_.substr(at, size);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Where the list of files is.
struct Directory {
  std::uint64_t files = 0;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

struct Member {
  std::string name;
  std::uint64_t method = 0;
  std::uint64_t checksum = 0;
  std::uint64_t packed = 0;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  // where it begins
};

Directory zip64_directory(const InputFile& file, std::uint64_t locator_at) {
  constexpr std::uint64_t kLocator = 20, kRecord = 56;
  const Piece locator(file, locator_at, kLocator);
  const std::uint64_t at = locator.u64(8);
  if (locator.text(0, 4) != "PK\x06\x07" || at > file.size() || file.size() - at < kRecord) {
    throw InputError("its Zip64 part is damaged");
  }
  const Piece record(file, at, kRecord);
  if (record.text(0, 4) != "PK\x06\x06") throw InputError("its Zip64 part is damaged");
  return {record.u64(32), record.u64(48), record.u64(40)};
}

Directory find_directory(const InputFile& file) {
  constexpr std::uint64_t kEnd = 22, kLongestComment = 0xFFFF, kLocator = 20;
  const std::uint64_t size = std::min(file.size(), kEnd + kLongestComment);
  const std::uint64_t begin = file.size() - size;
  const Piece tail(file, begin, size);
  const std::size_t at = tail.bytes().rfind("PK\x05\x06");
  if (at == std::string::npos) throw InputError("the archive's list of files is missing: cut off?");
  Directory directory{tail.u16(at + 10), tail.u32(at + 16), tail.u32(at + 12)};
  const bool larger =
      directory.files == 0xFFFF || directory.begin == kAllOnes || directory.size == kAllOnes;
  if (larger && begin + at >= kLocator) directory = zip64_directory(file, begin + at - kLocator);
  if (directory.begin > file.size() || directory.size > file.size() - directory.begin) {
    throw InputError("the archive's list of files is beyond its end");
  }
  return directory;
}

// Numbers that did not fit, in the order in which they did not.
void read_zip64(const Piece& list, std::size_t extra, std::size_t extra_bytes, Member& member) {
  const std::size_t end = extra + extra_bytes;
  for (std::size_t at = extra; at + 4 <= end; at += 4 + list.u16(at + 2)) {
    if (list.u16(at) != 1) continue;
    std::size_t next = at + 4;
    for (std::uint64_t* value : {&member.size, &member.packed, &member.header}) {
      if (*value != kAllOnes) continue;
      *value = list.u64(next);
      next += 8;
    }
    return;
  }
}

Member member_at(const Piece& list, std::size_t& at) {
  constexpr std::size_t kEntry = 46;
  constexpr std::uint64_t kEncrypted = 1;
  if (list.text(at, 4) != "PK\x01\x02") throw InputError("the archive's list of files is damaged");
  const std::size_t name_bytes = list.u16(at + 28), extra_bytes = list.u16(at + 30);
  Member member{list.text(at + kEntry, name_bytes),
                list.u16(at + 10),
                list.u32(at + 16),
                list.u32(at + 20),
                list.u32(at + 24),
                list.u32(at + 42)};
  if ((list.u16(at + 8) & kEncrypted) != 0) throw InputError(member.name + " is encrypted");
  read_zip64(list, at + kEntry + name_bytes, extra_bytes, member);
  at += kEntry + name_bytes + extra_bytes + list.u16(at + 32);
  return member;
}

// Where the bytes of a member begin: behind a header of its own.
std::uint64_t begin_of(const InputFile& file, const Member& member) {
  constexpr std::uint64_t kHeader = 30;
  if (member.header > file.size() || file.size() - member.header < kHeader) {
    throw InputError(member.name + " is beyond the archive's end");
  }
  const Piece header(file, member.header, kHeader);
  if (header.text(0, 4) != kZipMagic) throw InputError(member.name + " is not where the list says");
  const std::uint64_t begin = member.header + kHeader + header.u16(26) + header.u16(28);
  if (begin > file.size() || member.packed > file.size() - begin) {
    throw InputError(member.name + " is beyond the archive's end");
  }
  return begin;
}

// zlib without its header and checksum.
class RawInflate {
 public:
  RawInflate() {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw InputError("zlib could not be started");
  }
  ~RawInflate() { inflateEnd(&stream_); }
  RawInflate(const RawInflate&) = delete;
  RawInflate& operator=(const RawInflate&) = delete;

  // Whether `packed` is exactly what fills `into`.
  bool unpack(const InputFile& file, std::uint64_t begin, std::uint64_t packed, std::string& into) {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
    std::string piece;
    std::uint64_t at = 0, filled = 0;
    int status = Z_OK;
    while (status == Z_OK) {
      if (stream_.avail_in == 0 && at < packed) {
        piece.resize(std::min(kPiece, packed - at));
        file.read(begin + at, piece.data(), piece.size());
        at += piece.size();
        stream_.next_in = reinterpret_cast<Bytef*>(piece.data());
        stream_.avail_in = static_cast<uInt>(piece.size());
      }
      const std::uint64_t room = std::min<std::uint64_t>(into.size() - filled, kPiece);
      stream_.next_out = reinterpret_cast<Bytef*>(into.data() + filled);
      stream_.avail_out = static_cast<uInt>(room);
      status = inflate(&stream_, Z_NO_FLUSH);
      filled += room - stream_.avail_out;
    }
    return status == Z_STREAM_END && filled == into.size() && at == packed && stream_.avail_in == 0;
  }

 private:
  z_stream stream_ = {};
};

std::uint64_t checksum_of(const std::string& bytes) {
  uLong sum = crc32(0, nullptr, 0);
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes.size() - at);
    sum = crc32(sum, reinterpret_cast<const Bytef*>(bytes.data() + at), static_cast<uInt>(size));
  }
  return sum;
}

std::shared_ptr<const ByteRange> unpacked(const InputFile& file, const Member& member,
                                          std::uint64_t begin) {
  constexpr std::uint64_t kDeflateRatio = 1032;  // no deflate stream expands by more
  if (member.size / kDeflateRatio > member.packed) {
    throw InputError(member.name + ": " + std::to_string(member.packed) +
                     " packed bytes are said to hold " + std::to_string(member.size));
  }
  std::string bytes(member.size, '\0');
  RawInflate inflate;
  if (!inflate.unpack(file, begin, member.packed, bytes) || checksum_of(bytes) != member.checksum) {
    throw InputError(member.name + " is damaged");
  }
  return range_in_memory(std::move(bytes));
}

}  // namespace

std::map<std::string, std::shared_ptr<const ByteRange>> read_zip(
    const std::shared_ptr<const InputFile>& file) {
  constexpr std::uint64_t kStored = 0, kDeflated = 8;
  const std::string name = printable(file->path().string());
  std::map<std::string, std::shared_ptr<const ByteRange>> members;
  try {
    const Directory directory = find_directory(*file);
    const Piece list(*file, directory.begin, directory.size);
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < directory.files; ++i) {
      Member member = member_at(list, at);
      const std::uint64_t begin = begin_of(*file, member);
      if (member.method != kStored && member.method != kDeflated) {
        throw InputError(member.name + " is packed by method " + std::to_string(member.method) +
                         ", which is not read");
      }
      if (member.method == kStored && member.packed != member.size) {
        throw InputError(member.name + " is damaged");
      }
      const auto range = member.method == kStored
                             ? range_of_file(file, begin, member.size)
                             : with_memory_for(name + ": " + printable(member.name),
                                               [&] { return unpacked(*file, member, begin); });
      if (!members.emplace(member.name, range).second) {
        throw InputError("two files have the name " + member.name);
      }
    }
  } catch (const InputError& error) {
    throw InputError(name + ": " + printable(error.what()));
  }
  return members;
}

}  // namespace steelyard
