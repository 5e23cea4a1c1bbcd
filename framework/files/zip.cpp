#include "steelyard/framework/files/zip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "steelyard/framework/files/gzip_file.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/machine_memory.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard {
namespace {

constexpr std::uint32_t kAllOnes = 0xFFFFFFFF;  // a number that is in the Zip64 part
constexpr std::uint64_t kStored = 0, kDeflated = 8;

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

// The CRC-32 of a whole range.
std::uint64_t checksum_of(const ByteRange& range) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  uLong sum = crc32(0, nullptr, 0);
  std::string piece;
  for (std::uint64_t at = 0; at < range.size(); at += piece.size()) {
    piece.resize(std::min(kPiece, range.size() - at));
    range.read(at, piece.data(), piece.size());
    sum = crc32(sum, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
  }
  return sum;
}

// Numbers that did not fit, in the order in which they did not.
void read_zip64(const Piece& list, std::size_t extra, std::size_t extra_bytes, ZipMember& member) {
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

ZipMember member_at(const Piece& list, std::size_t& at) {
  constexpr std::size_t kEntry = 46;
  constexpr std::uint64_t kEncrypted = 1;
  if (list.text(at, 4) != "PK\x01\x02") throw InputError("the archive's list of files is damaged");
  const std::size_t name_bytes = list.u16(at + 28), extra_bytes = list.u16(at + 30);
  ZipMember member{.name = list.text(at + kEntry, name_bytes),
                   .method = list.u16(at + 10),
                   .checksum = list.u32(at + 16),
                   .packed = list.u32(at + 20),
                   .size = list.u32(at + 24),
                   .header = list.u32(at + 42)};
  if ((list.u16(at + 8) & kEncrypted) != 0) throw InputError(member.name + " is encrypted");
  read_zip64(list, at + kEntry + name_bytes, extra_bytes, member);
  at += kEntry + name_bytes + extra_bytes + list.u16(at + 32);
  return member;
}

// Where the bytes of a member begin: after a header of its own.
std::uint64_t begin_of(const InputFile& file, const ZipMember& member) {
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

void require_readable(const ZipMember& member) {
  if (member.method != kStored && member.method != kDeflated) {
    throw InputError(member.name + " is packed by method " + std::to_string(member.method) +
                     ", which is not read");
  }
  if (member.method == kStored && member.packed != member.size) {
    throw InputError(member.name + " is damaged");
  }
  if (member.size / kDeflateRatio > member.packed) {
    throw InputError(member.name + ": " + std::to_string(member.packed) +
                     " packed bytes are said to hold " + std::to_string(member.size));
  }
}

// Files that share bytes are how a small archive claims to hold a large one many times.
// (https://www.bamsoftware.com/hacks/zipbomb/)
void require_apart(const std::vector<ZipMember>& members, std::uint64_t list_begin) {
  std::vector<const ZipMember*> order;
  for (const ZipMember& member : members) order.push_back(&member);
  std::ranges::sort(order, {}, &ZipMember::header);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool is_last = i + 1 == order.size();
    const std::uint64_t end = order[i]->begin + order[i]->packed;
    if (end <= (is_last ? list_begin : order[i + 1]->header)) continue;
    throw InputError(order[i]->name + " overlaps " +
                     (is_last ? "the archive's list of files" : order[i + 1]->name));
  }
}

// In the order of the list.
std::vector<ZipMember> members_of(const InputFile& file) {
  const Directory directory = find_directory(file);
  const Piece list(file, directory.begin, directory.size);
  std::vector<ZipMember> members;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.files; ++i) {
    ZipMember member = member_at(list, at);
    member.begin = begin_of(file, member);
    require_readable(member);
    members.push_back(std::move(member));
  }
  require_apart(members, directory.begin);
  return members;
}

}  // namespace

ZipFile::ZipFile(std::shared_ptr<const InputFile> archive, std::uint64_t most_unpacked)
    : archive_(std::move(archive)), unpacked_left_(most_unpacked) {
  try {
    for (ZipMember& member : members_of(*archive_)) {
      const std::string name = member.name;
      if (members_.emplace(name, std::move(member)).second) continue;
      throw InputError("two files have the name " + name);
    }
  } catch (const InputError& error) {
    throw InputError(printable(archive_->path().string()) + ": " + printable(error.what()));
  }
}

ZipFile::ZipFile(std::shared_ptr<const InputFile> archive)
    : ZipFile(std::move(archive), static_cast<std::uint64_t>(machine_memory_bytes()) / 2) {}

std::vector<std::string> ZipFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) names.push_back(name);
  return names;
}

std::shared_ptr<const ByteRange> ZipFile::open(const std::string& name) {
  ZipMember& member = members_.at(name);
  if (!member.opened) member.opened = opened(member);
  return member.opened;
}

std::shared_ptr<const ByteRange> ZipFile::opened(const ZipMember& member) {
  std::shared_ptr<const ByteRange> range;
  if (member.method == kStored) {
    range = range_of_file(archive_, member.begin, member.size);
  } else {
    if (member.size > unpacked_left_) {
      throw InputError(member.name + " takes " + std::to_string(member.size) +
                       " bytes unpacked, expected at most " + std::to_string(unpacked_left_) +
                       " more: files that are stored are not unpacked to memory");
    }
    unpacked_left_ -= member.size;
    std::string bytes = with_memory_for(
        printable(archive_->path().string()) + ": " + printable(member.name) + ", " +
            std::to_string(member.size) + " bytes unpacked (files that are stored are not)",
        [&] { return std::string(member.size, '\0'); });
    RawInflate inflate;
    if (!inflate.unpack(*archive_, member.begin, member.packed, bytes)) {
      throw InputError(member.name + " is damaged");
    }
    range = range_in_memory(std::move(bytes));
  }
  const std::uint64_t sum = checksum_of(*range);
  if (sum == member.checksum) return range;
  throw InputError(member.name + " is damaged: expected bytes with the CRC-32 " +
                   std::to_string(member.checksum) + ", got " + std::to_string(sum));
}

}  // namespace steelyard
