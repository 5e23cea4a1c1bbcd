#include "steelyard/framework/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, DType>, 9> kDTypes = {{
    {"F64", DType::kF64},
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"I64", DType::kI64},
    {"I32", DType::kI32},
    {"I8", DType::kI8},
    {"U8", DType::kU8},
    {"BOOL", DType::kBool},
}};
constexpr std::string_view kMetadataKey = "__metadata__";

// Receives the parser's events and accepts only the header's shape: an object of objects, whose
// arrays hold numbers. nlohmann's own tree would drop duplicate keys and grow to any depth.
class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderEvents(std::string file) : file_(std::move(file)) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(std::int64_t value) override { unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { unexpected(text); }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::kShape) return add_dimension(value);
    if (place_ == Place::kOffsets) return add_offset(value);
    unexpected(std::to_string(value));
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, text).second) {
        fail("duplicate metadata key '" + printable(key_) + "'");
      }
      if (header_.metadata.size() > kMaxSafetensorsMetadata) {
        fail("expected at most " + std::to_string(kMaxSafetensorsMetadata) + " metadata keys");
      }
      return true;
    }
    if (place_ == Place::kTensor && key_ == "dtype") return set_dtype(text);
    unexpected("a string");
  }

  bool key(std::string& name) override {
    key_ = name;
    if (place_ == Place::kTop) return start_entry();
    if (place_ == Place::kTensor) return start_field();
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = key_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail("offset " + std::to_string(kSafetensorsPrefixBytes + position) +
         ": header is not valid JSON: " + printable(error.what()));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  [[noreturn]] void fail(const std::string& what) const { throw InputError(file_ + ": " + what); }

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::kOutside:
        fail("expected a header object, got " + what);
      case Place::kTop:
        fail("expected an object for '" + printable(key_) + "', got " + what);
      case Place::kMetadata:
        fail("expected a string for metadata '" + printable(key_) + "', got " + what);
      case Place::kTensor:
      case Place::kShape:
      case Place::kOffsets:
        fail_tensor("unexpected " + what + " in '" + printable(key_) + "'");
    }
    fail("unexpected " + what);
  }

  [[noreturn]] void fail_tensor(const std::string& what) const {
    fail("tensor '" + printable(entry_.name) + "': " + what);
  }

  bool start_entry() {
    if (!names_.insert(key_).second) fail("duplicate name '" + printable(key_) + "'");
    if (key_ == kMetadataKey) return true;
    if (header_.entries.size() == kMaxSafetensorsTensors) {
      fail("expected at most " + std::to_string(kMaxSafetensorsTensors) + " tensors");
    }
    entry_ = {};
    entry_.name = key_;
    fields_.clear();
    offsets_.clear();
    return true;
  }

  bool start_field() {
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
      fail_tensor("unknown field '" + printable(key_) + "'");
    }
    if (!fields_.insert(key_).second) fail_tensor("duplicate field '" + key_ + "'");
    return true;
  }

  bool set_dtype(const std::string& word) {
    const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                     [&](const auto& row) { return row.first == word; });
    if (found == kDTypes.end()) {
      fail_tensor("unsupported dtype '" + printable(word) +
                  "' (supported: F64 F32 F16 BF16 I64 I32 I8 U8 BOOL)");
    }
    entry_.dtype = found->second;
    return true;
  }

  bool add_dimension(std::uint64_t value) {
    if (entry_.shape.size() == kMaxSafetensorsRank) {
      fail_tensor("expected rank at most " + std::to_string(kMaxSafetensorsRank));
    }
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      fail_tensor("dimension " + std::to_string(value) + " exceeds 63 bits");
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    if (offsets_.size() == 2) fail_tensor("expected two data_offsets, got more");
    offsets_.push_back(value);
    return true;
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail_tensor(std::string("missing field '") + field + "'");
    }
    if (offsets_.size() != 2) fail_tensor("expected two data_offsets");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    require_size();
    header_.entries.push_back(std::move(entry_));
  }

  void require_size() const {
    std::int64_t size = 1;
    bool overflow = false;
    for (const std::int64_t d : entry_.shape) {
      overflow = overflow || __builtin_mul_overflow(size, d, &size);
    }
    overflow = overflow || __builtin_mul_overflow(
                               size, static_cast<std::int64_t>(dtype_bytes(entry_.dtype)), &size);
    if (overflow) fail_tensor("size of shape " + shape_string(entry_.shape) + " exceeds 63 bits");
    if (entry_.begin > entry_.end ||
        entry_.end - entry_.begin != static_cast<std::uint64_t>(size)) {
      fail_tensor("expected " + std::to_string(size) + " bytes for shape " +
                  shape_string(entry_.shape) + ", got data_offsets [" +
                  std::to_string(entry_.begin) + ", " + std::to_string(entry_.end) + "]");
    }
  }

  std::string file_;
  SafetensorsHeader header_;
  Place place_ = Place::kOutside;
  std::string key_;
  std::set<std::string> names_;
  SafetensorsEntry entry_;
  std::set<std::string> fields_;
  std::vector<std::uint64_t> offsets_;
};

void require_contiguous(const std::string& file, const std::vector<SafetensorsEntry>& entries,
                        std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  for (const SafetensorsEntry& e : entries) {
    if (e.begin != position) {
      throw InputError(file + ": tensor '" + printable(e.name) + "': expected data to begin at " +
                       std::to_string(position) + ", got " + std::to_string(e.begin));
    }
    position = e.end;
  }
  if (position != data_bytes) {
    throw InputError(file + ": expected " + std::to_string(position) +
                     " bytes of tensors after the header, got " + std::to_string(data_bytes));
  }
}

std::string_view dtype_word(DType dtype) {
  return std::find_if(kDTypes.begin(), kDTypes.end(),
                      [&](const auto& row) { return row.second == dtype; })
      ->first;
}

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    throw std::invalid_argument("[safetensors] name or metadata '" + printable(text) +
                                "' is not UTF-8");
  }
}

std::string entry_json(const SafetensorsEntry& e) {
  std::string json =
      quoted(e.name) + R"(:{"dtype":")" + std::string(dtype_word(e.dtype)) + R"(","shape":[)";
  for (std::size_t i = 0; i < e.shape.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(e.shape[i]);
  }
  return json + R"(],"data_offsets":[)" + std::to_string(e.begin) + "," + std::to_string(e.end) +
         "]}";
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view json,
                                           std::uint64_t data_bytes) {
  if (!json.starts_with('{')) {
    throw InputError(file + ": offset 8: expected the header to begin with '{'");
  }
  // nlohmann's lexer takes a NUL byte for the end of its input and would accept what follows.
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos) {
    throw InputError(file + ": offset " + std::to_string(kSafetensorsPrefixBytes + nul) +
                     ": NUL byte in the header");
  }
  HeaderEvents events(file);
  Json::sax_parse(json.begin(), json.end(), &events);
  SafetensorsHeader header = events.take();
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end) ||
           (std::pair(a.begin, a.end) == std::pair(b.begin, b.end) && a.name < b.name);
  });
  require_contiguous(file, header.entries, data_bytes);
  return header;
}

std::string encode_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                      const TensorFileMetadata& metadata) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += quoted(std::string(kMetadataKey)) + ":{";
    for (const auto& [key, value] : metadata) {
      separate();
      json += quoted(key) + ":" + quoted(value);
    }
    json += '}';
  }
  for (const SafetensorsEntry& e : entries) {
    separate();
    json += entry_json(e);
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  static_assert(std::endian::native == std::endian::little, "the prefix is little-endian");
  const auto n = static_cast<std::uint64_t>(json.size());
  std::string bytes(sizeof n, '\0');
  std::copy_n(reinterpret_cast<const char*>(&n), sizeof n, bytes.data());
  return bytes + json;
}

}  // namespace steelyard
