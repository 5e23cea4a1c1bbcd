#include "steelyard/framework/data/shards/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMostOfHeader = std::uint64_t{1} << 20;  // of a long name or its like

// A block that describes what follows it.
class Header {
 public:
  explicit Header(std::string block) : block_(std::move(block)) {}

  bool is_empty() const {
    return std::all_of(block_.begin(), block_.end(), [](char c) { return c == '\0'; });
  }

  // Whether the checksum is that of all bytes, its own taken as spaces.
  bool has_right_checksum() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < block_.size(); ++i) {
      const bool own = i >= 148 && i < 156;
      sum += own ? std::uint64_t{' '} : static_cast<unsigned char>(block_[i]);
    }
    return number(148, 8) == sum;
  }

  char type() const { return block_[156]; }

  std::string name() const {
    const std::string prefix =
        block_.compare(257, 6, std::string("ustar\0", 6)) == 0 ? text(345, 155) : "";
    return prefix.empty() ? text(0, 100) : prefix + "/" + text(0, 100);
  }

  std::optional<std::uint64_t> size() const { return number(124, 12); }

 private:
  std::string text(std::size_t at, std::size_t most) const {
    const std::string field = block_.substr(at, most);
    return field.substr(0, field.find('\0'));
  }

  // Octal digits; or, where the first bit is set, all other bits as one number.
  std::optional<std::uint64_t> number(std::size_t at, std::size_t bytes) const {
    const std::string field = block_.substr(at, bytes);
    if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) {
      std::uint64_t value = static_cast<unsigned char>(field[0]) & 0x7F;
      for (std::size_t i = 1; i < bytes; ++i) {
        if (value >> 55 != 0) return std::nullopt;
        value = value << 8 | static_cast<unsigned char>(field[i]);
      }
      return value;
    }
    const std::size_t begin = field.find_first_not_of(' ');
    if (begin == std::string::npos) return std::nullopt;
    std::uint64_t value = 0;
    const auto [stop, error] =
        std::from_chars(field.data() + begin, field.data() + field.size(), value, 8);
    const bool ends = stop == field.data() + field.size() || *stop == ' ' || *stop == '\0';
    return error == std::errc() && ends ? std::optional(value) : std::nullopt;
  }

  std::string block_;
};

// What extended headers say of the file after them.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

// Records "LENGTH KEY=VALUE\n", whose length counts all of them.
bool read_pax(std::string_view text, Extension& extension) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(stop - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3) return false;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extension.name = std::string(value);
    if (key == "size") {
      std::uint64_t size = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
      if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size()) return false;
      extension.size = size;
    }
    text.remove_prefix(length);
  }
  return true;
}

class Reader {
 public:
  explicit Reader(const InputFile& archive) : archive_(archive) {}

  std::vector<TarMember> members() {
    Extension extension;
    while (archive_.size() - at_ >= kBlock) {
      const Header header(bytes(at_, kBlock));
      if (header.is_empty()) {
        require_end();
        return members_;
      }
      if (!header.has_right_checksum()) fail("not the header of a file");
      at_ += kBlock;
      const bool extends = header.type() == 'x' || header.type() == 'g' || header.type() == 'L';
      const std::optional<std::uint64_t> size =
          extension.size && !extends ? extension.size : header.size();
      if (!size || *size > archive_.size() - at_) fail("a file that the archive cuts off");
      if (extends) {
        extend(header, *size, extension);
      } else {
        add(header, *size, extension);
        extension = {};
      }
      at_ += (*size + kBlock - 1) / kBlock * kBlock;
      at_ = std::min(at_, archive_.size());
    }
    fail("its end is missing");
  }

 private:
  // What follows the end is filled up with zeros; anything else would be left out in silence, as
  // the second one of two archives that were joined.
  void require_end() {
    for (; at_ < archive_.size(); at_ += kBlock) {
      if (!Header(bytes(at_, std::min(kBlock, archive_.size() - at_))).is_empty()) {
        fail("bytes after the end of the archive: were two archives joined?");
      }
    }
  }

  void extend(const Header& header, std::uint64_t size, Extension& extension) {
    if (size > kMostOfHeader) fail("a header of " + std::to_string(size) + " bytes");
    const std::string text = bytes(at_, size);
    if (header.type() == 'L') extension.name = text.substr(0, text.find('\0'));
    if (header.type() == 'x' && !read_pax(text, extension)) fail("a damaged extended header");
  }

  void add(const Header& header, std::uint64_t size, const Extension& extension) {
    constexpr char kFolder = '5';
    const std::string name = extension.name.value_or(header.name());
    if (header.type() == kFolder) return;
    if (header.type() != '0' && header.type() != '\0') {
      fail("expected files and folders only; " + printable(name) + " is of type '" +
           printable(std::string(1, header.type())) + "'");
    }
    members_.push_back({name, at_, size});
  }

  std::string bytes(std::uint64_t begin, std::uint64_t size) const {
    std::string read(size, '\0');
    archive_.read(begin, read.data(), size);
    return read;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(printable(archive_.path().string()) + ": byte " + std::to_string(at_) + ": " +
                     what + (at_ == 0 ? looks_like(kind_of(archive_)) : ""));
  }

  const InputFile& archive_;
  std::uint64_t at_ = 0;
  std::vector<TarMember> members_;
};

}  // namespace

std::vector<TarMember> tar_members(const InputFile& archive) { return Reader(archive).members(); }

}  // namespace steelyard
