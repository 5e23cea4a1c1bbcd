#include "steelyard/framework/files/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::uint32_t kGgufVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kLargestSize = std::numeric_limits<std::int64_t>::max();

template <typename T>
void append_raw(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& to, std::string_view text) {
  append_raw<std::uint64_t>(to, text.size());
  to.append(text);
}

// What is wrong with an alignment; empty if nothing is.
std::string alignment_problem(const GgufValue& value) {
  const auto number = value.type == GgufValueType::kU32 ? value.whole_number() : std::nullopt;
  if (!number) return "expected an alignment of type u32";
  const auto alignment = static_cast<std::uint64_t>(*number);
  if (std::has_single_bit(alignment) && alignment <= kMaxGgufAlignment) return "";
  return "expected an alignment that is a power of two up to " + std::to_string(kMaxGgufAlignment) +
         ", got " + std::to_string(alignment);
}

// What is wrong with a tensor's name, sizes and type; empty if nothing is.
std::string tensor_problem(const GgufTensor& tensor) {
  if (tensor.name.empty() || tensor.name.size() > kMaxGgufNameBytes) {
    return "expected a name of 1 to " + std::to_string(kMaxGgufNameBytes) + " bytes, got " +
           std::to_string(tensor.name.size());
  }
  if (tensor.sizes.empty() || tensor.sizes.size() > kMaxGgufRank) {
    return "expected 1 to " + std::to_string(kMaxGgufRank) + " dimensions, got " +
           std::to_string(tensor.sizes.size());
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.sizes) {
    if (size < 1) return "expected sizes from 1, got " + std::to_string(size);
    if (__builtin_mul_overflow(elements, size, &elements)) return "more than 2^63 elements";
  }
  const kernels::GgmlType& type = *tensor.type;
  if (tensor.sizes[0] % type.elements != 0) {
    return "expected rows of whole blocks of " + std::to_string(type.elements) + " for " +
           std::string(type.name) + ", got rows of " + std::to_string(tensor.sizes[0]);
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / type.elements, type.bytes, &bytes) ||
      static_cast<std::uint64_t>(bytes) > kLargestSize - kMaxGgufAlignment) {
    return "more than 2^63 bytes";
  }
  return "";
}

// Goes through the file's bytes; they are read a piece at a time.
class HeaderCursor {
 public:
  HeaderCursor(const std::string& file, const ByteRange& bytes) : file_(file), bytes_(bytes) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return bytes_.size() - offset_; }

  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const {
    throw InputError(file_ + ": offset " + std::to_string(offset) + ": " + what);
  }

  template <typename T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  // A length, in elements of at least `element_bytes` each: what is left of the file has them.
  std::uint64_t count(const char* what, std::uint64_t most, std::uint64_t element_bytes) {
    const std::uint64_t at = offset_;
    const auto value = number<std::uint64_t>(what);
    if (value > most) {
      fail(at, std::string("expected ") + what + " of at most " + std::to_string(most) + ", got " +
                   std::to_string(value));
    }
    if (value > left() / element_bytes) {
      fail(at, std::string("expected ") + what + " that the file has, got " +
                   std::to_string(value) + " with " + std::to_string(left()) + " bytes left");
    }
    return value;
  }

  std::string text(const char* what, std::uint64_t most) {
    const std::uint64_t length = count(what, most, 1);
    std::string bytes;
    append_to(bytes, length, what);
    return bytes;
  }

  // Appends the next `length` bytes, which the file has.
  void append_to(std::string& to, std::uint64_t length, const char* what) {
    while (length > 0) {
      const std::uint64_t now = std::min<std::uint64_t>(length, kPiece);
      to.append(take(now, what), now);
      length -= now;
    }
  }

 private:
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 16;

  // The next `length` <= kPiece bytes, until the next call.
  const char* take(std::uint64_t length, const char* what) {
    if (length > left()) {
      fail(offset_, std::string("the file ends in ") + what + ", which has " +
                        std::to_string(length) + " bytes");
    }
    if (offset_ + length > kMaxGgufHeaderBytes) {
      fail(offset_,
           "expected a header of at most " + std::to_string(kMaxGgufHeaderBytes) + " bytes");
    }
    if (offset_ < piece_begin_ || offset_ + length > piece_begin_ + piece_.size()) {
      piece_begin_ = offset_;
      piece_.resize(std::min(left(), kPiece));
      bytes_.read(piece_begin_, piece_.data(), piece_.size());
    }
    const char* found = piece_.data() + (offset_ - piece_begin_);
    offset_ += length;
    return found;
  }

  const std::string& file_;
  const ByteRange& bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t piece_begin_ = 0;
  std::string piece_;
};

GgufValueType read_value_type(HeaderCursor& in, const char* what) {
  const std::uint64_t at = in.offset();
  const auto type = in.number<std::uint32_t>(what);
  if (type > static_cast<std::uint32_t>(GgufValueType::kF64)) {
    in.fail(at, std::string("expected ") + what + " from 0 to 12, got " + std::to_string(type));
  }
  return static_cast<GgufValueType>(type);
}

void require_bools(const HeaderCursor& in, std::uint64_t at, const std::string& bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](char b) { return static_cast<unsigned char>(b) > 1; });
  if (bad == bytes.end()) return;
  in.fail(at + static_cast<std::uint64_t>(bad - bytes.begin()),
          "expected a bool of 0 or 1, got " + std::to_string(static_cast<unsigned char>(*bad)));
}

// `count` values of the type, as the file has them.
void read_values(HeaderCursor& in, GgufValueType type, std::uint64_t count, std::string& bytes) {
  if (type == GgufValueType::kString) {
    for (std::uint64_t i = 0; i < count; ++i) {
      append_text(bytes, in.text("a string", kMaxGgufHeaderBytes));
    }
    return;
  }
  const std::uint64_t at = in.offset();
  in.append_to(bytes, count * gguf_scalar_bytes(type), "a value");
  if (type == GgufValueType::kBool) require_bools(in, at, bytes);
}

GgufValue read_value(HeaderCursor& in) {
  GgufValue value;
  value.type = read_value_type(in, "a type of a value");
  if (value.type == GgufValueType::kString) {
    value.bytes = in.text("a string", kMaxGgufHeaderBytes);
  } else if (value.type == GgufValueType::kArray) {
    const std::uint64_t at = in.offset();
    value.element = read_value_type(in, "a type of elements");
    if (value.element == GgufValueType::kArray) in.fail(at, "expected no array of arrays");
    const std::uint64_t least =
        value.element == GgufValueType::kString ? 8 : gguf_scalar_bytes(value.element);
    value.count = in.count("a length of an array", kMaxGgufHeaderBytes, least);
    read_values(in, value.element, value.count, value.bytes);
  } else {
    read_values(in, value.type, 1, value.bytes);
  }
  return value;
}

GgufTensor read_tensor(HeaderCursor& in) {
  const std::uint64_t at = in.offset();
  GgufTensor tensor;
  tensor.name = in.text("a tensor's name", kMaxGgufNameBytes);
  const std::uint64_t rank_at = in.offset();
  const auto rank = in.number<std::uint32_t>("a tensor's number of dimensions");
  if (rank > kMaxGgufRank) {
    in.fail(rank_at, "tensor '" + printable(tensor.name) + "': expected 1 to " +
                         std::to_string(kMaxGgufRank) + " dimensions, got " + std::to_string(rank));
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    const std::uint64_t size_at = in.offset();
    const auto size = in.number<std::uint64_t>("a tensor's size");
    if (size > kLargestSize) {
      in.fail(size_at, "tensor '" + printable(tensor.name) + "': expected a size below 2^63, got " +
                           std::to_string(size));
    }
    tensor.sizes.push_back(static_cast<std::int64_t>(size));
  }
  const std::uint64_t type_at = in.offset();
  const auto type = in.number<std::uint32_t>("a tensor's type");
  tensor.type = kernels::find_ggml_type(type);
  if (tensor.type == nullptr) {
    in.fail(type_at, "tensor '" + printable(tensor.name) + "': expected a type of ggml's, got " +
                         std::to_string(type));
  }
  tensor.offset = in.number<std::uint64_t>("a tensor's offset");
  const std::string problem = tensor_problem(tensor);
  if (!problem.empty()) in.fail(at, "tensor '" + printable(tensor.name) + "': " + problem);
  return tensor;
}

void require_gguf(HeaderCursor& in) {
  if (in.left() < kGgufMagic.size() + sizeof kGgufVersion) in.fail(0, "not a GGUF file: too short");
  const auto magic = in.number<std::uint32_t>("GGUF");
  if (std::memcmp(&magic, kGgufMagic.data(), kGgufMagic.size()) != 0) {
    in.fail(0, "not a GGUF file: it does not begin with GGUF");
  }
  const auto version = in.number<std::uint32_t>("a version");
  if (version == kGgufVersion) return;
  const bool swapped = __builtin_bswap32(version) <= 16;
  in.fail(4, swapped ? "expected little-endian numbers, got big-endian ones"
                     : "expected version " + std::to_string(kGgufVersion) + ", got " +
                           std::to_string(version));
}

// Offsets as a writer gives them: each tensor begins where the one before it ends, padded.
void require_places(HeaderCursor& in, const GgufHeader& header, std::uint64_t file_bytes) {
  std::uint64_t expected = 0, end = 0;
  const std::uint64_t room = file_bytes < header.data_begin ? 0 : file_bytes - header.data_begin;
  for (const GgufTensor& tensor : header.tensors) {
    const auto refuse = [&](const std::string& what) {
      in.fail(header.data_begin, "tensor '" + printable(tensor.name) + "': " + what);
    };
    if (tensor.offset != expected) {
      refuse("expected its bytes at " + std::to_string(expected) + " behind here, got " +
             std::to_string(tensor.offset));
    }
    if (tensor.bytes() > room - std::min(room, expected)) {
      refuse("expected " + std::to_string(tensor.bytes()) + " bytes at " +
             std::to_string(expected) + " behind here, the file has " + std::to_string(room));
    }
    end = expected + tensor.bytes();
    expected = gguf_padded(end, header.alignment);
  }
  if (room > expected) {
    in.fail(header.data_begin + expected,
            std::to_string(room - expected) + " bytes behind the last tensor");
  }
}

}  // namespace

std::int64_t GgufTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::uint64_t GgufTensor::bytes() const {
  return static_cast<std::uint64_t>(elements() / type->elements * type->bytes);
}

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const GgufEntry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

GgufHeader parse_gguf_header(const std::string& file, const ByteRange& bytes) {
  HeaderCursor in(file, bytes);
  require_gguf(in);
  // A tensor has at least a length, a rank, a size, a type and an offset; an entry a length, a
  // type and a value.
  const std::uint64_t tensors = in.count("a number of tensors", kMaxGgufTensors, 33);
  const std::uint64_t entries = in.count("a number of metadata entries", kMaxGgufEntries, 14);
  GgufHeader header;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t at = in.offset();
    std::string key = in.text("a key", kMaxGgufKeyBytes);
    if (key.empty()) in.fail(at, "expected a key of at least one byte");
    if (!names.insert(key).second) in.fail(at, "duplicate key '" + printable(key) + "'");
    const std::uint64_t value_at = in.offset();
    header.entries.push_back({std::move(key), read_value(in)});
    if (header.entries.back().key == kAlignmentKey) {
      const std::string problem = alignment_problem(header.entries.back().value);
      if (!problem.empty()) in.fail(value_at, problem);
      header.alignment = static_cast<std::uint64_t>(*header.entries.back().value.whole_number());
    }
  }
  names.clear();
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::uint64_t at = in.offset();
    header.tensors.push_back(read_tensor(in));
    const std::string& name = header.tensors.back().name;
    if (!names.insert(name).second) in.fail(at, "duplicate tensor '" + printable(name) + "'");
  }
  header.data_begin = gguf_padded(in.offset(), header.alignment);
  require_places(in, header, bytes.size());
  return header;
}

std::string encode_gguf_header(const std::vector<GgufEntry>& entries,
                               std::vector<GgufTensor>& tensors) {
  const auto refuse = [](const std::string& what, const std::string& why) {
    throw std::invalid_argument("[gguf] " + what + ": " + why);
  };
  std::string out(kGgufMagic);
  append_raw(out, kGgufVersion);
  append_raw<std::uint64_t>(out, tensors.size());
  append_raw<std::uint64_t>(out, entries.size());
  std::uint64_t alignment = kGgufAlignment;
  std::set<std::string> names;
  for (const GgufEntry& entry : entries) {
    const std::string what = "key '" + printable(entry.key) + "'";
    const GgufValue& value = entry.value;
    if (entry.key.empty() || entry.key.size() > kMaxGgufKeyBytes) refuse(what, "its length");
    if (!names.insert(entry.key).second) refuse(what, "duplicate");
    if (entry.key == kAlignmentKey) {
      const std::string problem = alignment_problem(value);
      if (!problem.empty()) refuse(what, problem);
      alignment = static_cast<std::uint64_t>(*value.whole_number());
    }
    append_text(out, entry.key);
    append_raw(out, static_cast<std::uint32_t>(value.type));
    if (value.type == GgufValueType::kString) append_raw<std::uint64_t>(out, value.bytes.size());
    if (value.type == GgufValueType::kArray) {
      append_raw(out, static_cast<std::uint32_t>(value.element));
      append_raw(out, value.count);
    }
    out += value.bytes;
  }
  names.clear();
  std::uint64_t offset = 0;
  for (GgufTensor& tensor : tensors) {
    const std::string what = "tensor '" + printable(tensor.name) + "'";
    const std::string problem = tensor_problem(tensor);
    if (!problem.empty()) refuse(what, problem);
    if (!names.insert(tensor.name).second) refuse(what, "duplicate");
    tensor.offset = offset;
    append_text(out, tensor.name);
    append_raw(out, static_cast<std::uint32_t>(tensor.sizes.size()));
    for (const std::int64_t size : tensor.sizes) append_raw(out, size);
    append_raw(out, tensor.type->id);
    append_raw(out, offset);
    offset += gguf_padded(tensor.bytes(), alignment);
    if (offset > kLargestSize) refuse(what, "ends behind 2^63 bytes");
  }
  if (entries.size() > kMaxGgufEntries || tensors.size() > kMaxGgufTensors ||
      out.size() > kMaxGgufHeaderBytes) {
    refuse("the header", "more entries, tensors or bytes than files may have");
  }
  out.resize(gguf_padded(out.size(), alignment), '\0');
  return out;
}

}  // namespace steelyard
