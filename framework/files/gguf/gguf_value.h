// A value of the metadata of a GGUF file (framework/files/gguf/gguf_header.h describes the format).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

// The values are the format's numbers.
enum class GgufValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// A value of the metadata. Its bytes are those of the file, so that nothing is lost on the way to
// another one.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;  // of an array; never an array
  std::uint64_t count = 0;                     // elements of an array
  // Of a string its text; of an array of strings each with its length in front.
  std::string bytes;

  static GgufValue of_u32(std::uint32_t value);
  static GgufValue of_f32(float value);
  static GgufValue of_string(std::string text);
  static GgufValue of_strings(const std::vector<std::string>& texts);

  // The value as the type asked for; none where it is of another kind, or does not fit.
  std::optional<std::int64_t> whole_number() const;
  std::optional<double> number() const;
  std::optional<std::string_view> text() const;
  std::optional<std::vector<std::string_view>> texts() const;
  std::optional<std::vector<std::int64_t>> whole_numbers() const;

  bool operator==(const GgufValue&) const = default;
};

// Bytes of a value of this type; 0 where they are not always as many (strings and arrays).
std::uint64_t gguf_scalar_bytes(GgufValueType type);

}  // namespace steelyard
