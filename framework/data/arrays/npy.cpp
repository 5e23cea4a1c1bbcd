#include "steelyard/framework/data/arrays/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "steelyard/framework/data/arrays/zip.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/float_range.h"
#include "steelyard/framework/memory_error.h"

namespace steelyard {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

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

template <typename T>
void widen(const std::string& bytes, std::int64_t* to) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    *to++ = static_cast<std::int64_t>(value);
  }
}

void widen(NpyArray::Kind kind, std::int64_t item_bytes, const std::string& bytes,
           std::int64_t* to) {
  const bool is_signed = kind == NpyArray::Kind::kSigned;
  switch (item_bytes) {
    case 1:
      return is_signed ? widen<std::int8_t>(bytes, to) : widen<std::uint8_t>(bytes, to);
    case 2:
      return is_signed ? widen<std::int16_t>(bytes, to) : widen<std::uint16_t>(bytes, to);
    case 4:
      return is_signed ? widen<std::int32_t>(bytes, to) : widen<std::uint32_t>(bytes, to);
    default:
      // Above 2^63 an unsigned label becomes negative, which is refused as one.
      return is_signed ? widen<std::int64_t>(bytes, to) : widen<std::uint64_t>(bytes, to);
  }
}

DType float_of(std::int64_t item_bytes) {
  return item_bytes == 2 ? DType::kF16 : item_bytes == 4 ? DType::kF32 : DType::kF64;
}

std::int64_t values_of(const Shape& shape) {
  std::int64_t values = 1;
  for (const std::int64_t extent : shape) values *= extent;
  return values;
}

class NpySamples : public SampleSource {
 public:
  explicit NpySamples(const NpyArray& array) : array_(array) {
    const Shape& shape = array.shape();
    if (shape.size() < 2) {
      throw InputError(array.name() + ": expected inputs [N, ...], got " + array.text());
    }
    if (array.kind() == NpyArray::Kind::kBool) {
      throw InputError(array.name() + ": expected inputs of whole numbers or floats, got " +
                       array.text());
    }
    const bool bytes = array.kind() == NpyArray::Kind::kUnsigned && array.item_bytes() == 1;
    dtype_ = bytes ? DType::kU8 : DType::kF32;
    shape_.assign(shape.begin() + 1, shape.end());
    values_ = values_of(shape_);
  }

  std::int64_t size() const override { return array_.shape()[0]; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override {
    return array_.name() + ": sample " + std::to_string(sample);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    const bool floats = array_.kind() == NpyArray::Kind::kFloat;
    if (dtype_ == DType::kU8 || (floats && array_.item_bytes() == 4)) {
      return array_.read(sample * values_, values_, to);
    }
    const Tensor converted =
        floats ? read_floats(sample) : whole_numbers(read_integers(sample), name(sample));
    std::memcpy(to, converted.raw(), static_cast<std::size_t>(converted.bytes()));
  }

 private:
  Tensor read_floats(std::int64_t sample) const {
    const Tensor stored = Tensor::empty({values_}, float_of(array_.item_bytes()));
    array_.read(sample * values_, values_, stored.raw());
    return stored.to(DType::kF32);
  }

  Tensor read_integers(std::int64_t sample) const {
    std::string bytes(static_cast<std::size_t>(values_ * array_.item_bytes()), '\0');
    array_.read(sample * values_, values_, bytes.data());
    Tensor wide = Tensor::empty(shape_, DType::kI64);
    widen(array_.kind(), array_.item_bytes(), bytes, wide.data<std::int64_t>());
    return wide;
  }

  NpyArray array_;
  DType dtype_ = DType::kU8;
  Shape shape_;
  std::int64_t values_ = 0;
};

}  // namespace

NpyArray::NpyArray(std::shared_ptr<const ByteRange> bytes, std::string name)
    : bytes_(std::move(bytes)), name_(std::move(name)) {
  constexpr std::uint64_t kPrefix = 8;
  constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 20;
  std::array<unsigned char, 12> first = {};
  const std::uint64_t known = std::min<std::uint64_t>(bytes_->size(), first.size());
  bytes_->read(0, first.data(), known);
  const std::string_view begin(reinterpret_cast<const char*>(first.data()), known);
  try {
    if (!begin.starts_with(kMagic) || known < first.size()) {
      throw InputError("expected a NumPy array" + looks_like(kind_of(begin)));
    }
    const int version = first[6];
    if (version < 1 || version > 3) {
      throw InputError("expected version 1 to 3 of the format, got " + std::to_string(version));
    }
    const int length_bytes = version == 1 ? 2 : 4;
    const std::uint64_t length = little_endian(first.data() + kPrefix, length_bytes);
    begin_ = kPrefix + static_cast<std::uint64_t>(length_bytes) + length;
    if (length > kMaxHeader || begin_ > bytes_->size()) {
      throw InputError("a header of " + std::to_string(length) + " bytes in a file of " +
                       std::to_string(bytes_->size()));
    }
    std::string header(length, '\0');
    bytes_->read(begin_ - length, header.data(), length);
    parse_header(header);
  } catch (const InputError& error) {
    throw InputError(name_ + ": " + error.what());
  }
}

void NpyArray::parse_header(const std::string& header) {
  HeaderText text(header);
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
      shape_ = tuple_of(text);
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
  constexpr std::string_view kKinds = "biuf";
  const bool known = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                     kKinds.find(type[1]) != std::string_view::npos &&
                     std::string_view("1248").find(type[2]) != std::string_view::npos &&
                     !(type[1] == 'f' && type[2] == '1') && !(type[1] == 'b' && type[2] != '1');
  if (!known) {
    throw InputError("expected little-endian whole or floating-point numbers, got type '" +
                     printable(type) + "'");
  }
  kind_ = static_cast<Kind>(kKinds.find(type[1]));
  item_bytes_ = type[2] - '0';
  const std::uint64_t stored = bytes_->size() - begin_;
  std::uint64_t values = 1;
  std::uint64_t extents = 1;  // without those of 0, as a sample of an empty array may be large
  bool exact = true;
  for (const std::int64_t extent : shape_) {
    const auto e = static_cast<std::uint64_t>(extent);
    exact = exact && extents <= (std::uint64_t{1} << 40) / std::max<std::uint64_t>(e, 1);
    extents *= std::max<std::uint64_t>(e, 1);
    values *= e;
  }
  exact = exact && stored / static_cast<std::uint64_t>(item_bytes_) == values &&
          stored % static_cast<std::uint64_t>(item_bytes_) == 0;
  if (!exact) {
    throw InputError("the header says " + this->text() + ", the file has " +
                     std::to_string(stored) + " bytes of values");
  }
}

std::string NpyArray::text() const {
  constexpr std::array<const char*, 4> kNames{"bool", "int", "uint", "float"};
  const std::string bits = kind_ == Kind::kBool ? "" : std::to_string(item_bytes_ * 8);
  return kNames[static_cast<std::size_t>(kind_)] + bits + " " + shape_string(shape_);
}

void NpyArray::read(std::int64_t first, std::int64_t count, void* into) const {
  const auto item = static_cast<std::uint64_t>(item_bytes_);
  bytes_->read(begin_ + static_cast<std::uint64_t>(first) * item, into,
               static_cast<std::uint64_t>(count) * item);
}

std::map<std::string, NpyArray> read_npy_file(const std::filesystem::path& path) {
  const auto file = std::make_shared<const InputFile>(path);
  const std::string name = printable(path.string());
  std::map<std::string, NpyArray> arrays;
  std::array<char, 4> first = {};
  file->read(0, first.data(), std::min<std::uint64_t>(file->size(), first.size()));
  if (std::string_view(first.data(), first.size()) != kZipMagic) {
    arrays.emplace("", NpyArray(range_of_file(file, 0, file->size()), name));
    return arrays;
  }
  for (auto& [member, bytes] : read_zip(file)) {
    constexpr std::string_view kExtension = ".npy";
    if (!member.ends_with(kExtension)) {
      throw InputError(name + ": expected arrays NAME.npy only, got " + printable(member));
    }
    arrays.emplace(member.substr(0, member.size() - kExtension.size()),
                   NpyArray(bytes, name + ": " + printable(member)));
  }
  return arrays;
}

std::shared_ptr<const SampleSource> npy_samples(const NpyArray& array) {
  return std::make_shared<NpySamples>(array);
}

Tensor npy_targets(const NpyArray& array) {
  const Shape& shape = array.shape();
  if (shape.empty())
    throw InputError(array.name() + ": expected targets [N, ...], got " + array.text());
  if (array.kind() == NpyArray::Kind::kBool) {
    throw InputError(array.name() +
                     ": expected targets of integers (labels) or of floating-point numbers "
                     "(regression), got bool");
  }
  const std::int64_t values = values_of(shape);
  return with_memory_for(array.name(), [&] {
    if (array.kind() == NpyArray::Kind::kFloat) {
      const Tensor stored = Tensor::empty(shape, float_of(array.item_bytes()));
      array.read(0, values, stored.raw());
      require_within_float32(stored, array.name());
      const Tensor targets = stored.to(DType::kF32);
      return shape.size() == 1 ? targets.reshape({shape[0], 1}) : targets;
    }
    std::string bytes(static_cast<std::size_t>(values * array.item_bytes()), '\0');
    array.read(0, values, bytes.data());
    Tensor targets = Tensor::empty(shape, DType::kI64);
    widen(array.kind(), array.item_bytes(), bytes, targets.data<std::int64_t>());
    return targets;
  });
}

}  // namespace steelyard
