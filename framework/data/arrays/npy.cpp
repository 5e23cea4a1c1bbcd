#include "steelyard/framework/data/arrays/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kExtension = ".npy";  // of the arrays in an archive

// The header: a Python dictionary of a text, a truth value and a tuple of whole numbers.
class HeaderText {
 public:
  explicit HeaderText(std::string_view text) : rest_(text) {}

  // Whether `token` is next; passes over it, and over spaces.
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail(std::string("'").append(token).append("'"));
  }

  std::string quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const std::size_t end = rest_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos) fail("a text in quotes");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::int64_t integer() {
    skip_spaces();
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) fail("a whole number");
    rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
    return value;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw InputError("its header is damaged: expected " + expected + ", got '" +
                     printable(rest_.substr(0, 30)) + "'");
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

// "(60000, 28, 28)", "(5,)" or "()".
Shape tuple_of(HeaderText& text) {
  constexpr std::size_t kMostDimensions = 32;
  Shape shape;
  text.expect("(");
  while (!text.take(")")) {
    if (!shape.empty()) text.expect(",");
    if (text.take(")")) break;
    if (shape.size() == kMostDimensions) text.fail("at most 32 dimensions");
    shape.push_back(text.integer());
  }
  return shape;
}

std::uint64_t little_endian(const unsigned char* bytes, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

// What the header of an array says.
struct Header {
  StoredArray::Kind kind = StoredArray::Kind::kUnsigned;
  std::int64_t item_bytes = 1;
  Shape shape;
};

Header parse_header(std::string_view bytes) {
  HeaderText text(bytes);
  Header header;
  std::string type;
  bool has_order = false, has_shape = false;
  text.expect("{");
  while (!text.take("}")) {
    const std::string key = text.quoted();
    text.expect(":");
    if (key == "descr") {
      if (text.take("[")) {
        throw InputError("expected an array of numbers, got one of records (a structured dtype)");
      }
      type = text.quoted();
    } else if (key == "fortran_order") {
      if (!text.take("False")) {
        throw InputError("expected an array in C's order, got Fortran's (numpy.ascontiguousarray)");
      }
      has_order = true;
    } else if (key == "shape") {
      header.shape = tuple_of(text);
      has_shape = true;
    } else {
      text.fail("descr, fortran_order or shape");
    }
    if (!text.take(",")) {
      text.expect("}");
      break;
    }
  }
  if (type.empty() || !has_order || !has_shape) text.fail("descr, fortran_order and shape");
  constexpr std::string_view kKinds = "biuf";  // in the order of StoredArray::Kind
  const bool known = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                     kKinds.find(type[1]) != std::string_view::npos &&
                     std::string_view("1248").find(type[2]) != std::string_view::npos &&
                     !(type[1] == 'f' && type[2] == '1') && !(type[1] == 'b' && type[2] != '1');
  if (!known) {
    throw InputError("expected little-endian whole or floating-point numbers, got type '" +
                     printable(type) + "'");
  }
  header.kind = static_cast<StoredArray::Kind>(kKinds.find(type[1]));
  header.item_bytes = type[2] - '0';
  return header;
}

// Whether `stored` bytes are those of an array with that header.
bool has_bytes(const Header& header, std::uint64_t stored) {
  std::uint64_t values = 1;
  std::uint64_t extents = 1;  // without those of 0, as a sample of an empty array may be large
  for (const std::int64_t extent : header.shape) {
    const auto e = static_cast<std::uint64_t>(extent);
    if (extents > (std::uint64_t{1} << 40) / std::max<std::uint64_t>(e, 1)) return false;
    extents *= std::max<std::uint64_t>(e, 1);
    values *= e;
  }
  const auto item = static_cast<std::uint64_t>(header.item_bytes);
  return stored / item == values && stored % item == 0;
}

StoredArray array_in(const std::shared_ptr<const ByteRange>& bytes, const std::string& name) {
  constexpr std::uint64_t kPrefix = 8;
  constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 20;
  std::array<unsigned char, 12> first = {};
  const std::uint64_t known = std::min<std::uint64_t>(bytes->size(), first.size());
  bytes->read(0, first.data(), known);
  const std::string_view prefix(reinterpret_cast<const char*>(first.data()), known);
  if (!prefix.starts_with(kMagic) || known < first.size()) {
    throw InputError("expected a NumPy array" + looks_like(kind_of(prefix)));
  }
  const int version = first[6];
  if (version < 1 || version > 3) {
    throw InputError("expected version 1 to 3 of the format, got " + std::to_string(version));
  }
  const int length_bytes = version == 1 ? 2 : 4;
  const std::uint64_t length = little_endian(first.data() + kPrefix, length_bytes);
  const std::uint64_t begin = kPrefix + static_cast<std::uint64_t>(length_bytes) + length;
  if (length > kMaxHeader || begin > bytes->size()) {
    throw InputError("a header of " + std::to_string(length) + " bytes in a file of " +
                     std::to_string(bytes->size()));
  }
  std::string text(length, '\0');
  bytes->read(begin - length, text.data(), length);
  Header header = parse_header(text);
  const std::uint64_t stored = bytes->size() - begin;
  const bool exact = has_bytes(header, stored);
  StoredArray array(bytes, begin, name, header.kind, header.item_bytes, std::move(header.shape));
  if (!exact) {
    throw InputError("the header says " + array.text() + ", the file has " +
                     std::to_string(stored) + " bytes of values");
  }
  return array;
}

}  // namespace

StoredArray read_npy(std::shared_ptr<const ByteRange> bytes, const std::string& name) {
  try {
    return array_in(bytes, name);
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

NpyFile::NpyFile(const std::filesystem::path& path)
    : name_(printable(path.string())), file_(std::make_shared<const InputFile>(path)) {
  std::array<char, 4> first = {};
  file_->read(0, first.data(), std::min<std::uint64_t>(file_->size(), first.size()));
  const std::string_view magic(first.data(), first.size());
  if (magic != kZipMagic) {
    if (kMagic.starts_with(magic)) return;
    throw InputError(name_ + ": expected a NumPy array or an archive of arrays" +
                     looks_like(kind_of(*file_)));
  }
  archive_.emplace(file_);
  for (const std::string& member : archive_->names()) {
    if (member.ends_with(kExtension)) continue;
    throw InputError(name_ + ": expected arrays NAME.npy only, got " + printable(member));
  }
}

std::vector<std::string> NpyFile::names() const {
  if (!archive_) return {""};
  std::vector<std::string> names = archive_->names();
  for (std::string& name : names) name.resize(name.size() - kExtension.size());
  return names;
}

bool NpyFile::contains(const std::string& name) const {
  return archive_ ? archive_->contains(name + std::string(kExtension)) : name.empty();
}

StoredArray NpyFile::array(const std::string& name) {
  if (!contains(name)) {
    std::string got;
    for (const std::string& other : names()) got += (got.empty() ? "" : ", ") + other;
    throw InputError(name_ + ": expected an array " + name + ", got " +
                     (archive_ ? printable(got) : "a single one"));
  }
  if (!archive_) return read_npy(range_of_file(file_, 0, file_->size()), name_);
  const std::string member = name + std::string(kExtension);
  const auto bytes = [&] {
    try {
      return archive_->open(member);
    } catch (const InputError& error) {
      throw InputError(name_ + ": " + printable(error.what()));
    }
  }();
  return read_npy(bytes, name_ + ": " + printable(member));
}

}  // namespace steelyard
