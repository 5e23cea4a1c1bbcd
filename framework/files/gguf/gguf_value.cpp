#include "steelyard/framework/files/gguf/gguf_value.h"

#include <cstring>
#include <limits>

namespace steelyard {
namespace {

template <typename T>
void append_value_bytes(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T value_at(std::string_view bytes, std::size_t at = 0) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

std::uint64_t gguf_scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

GgufValue GgufValue::of_u32(std::uint32_t value) {
  GgufValue made{GgufValueType::kU32, {}, 0, {}};
  append_value_bytes(made.bytes, value);
  return made;
}

GgufValue GgufValue::of_f32(float value) {
  GgufValue made{GgufValueType::kF32, {}, 0, {}};
  append_value_bytes(made.bytes, value);
  return made;
}

GgufValue GgufValue::of_string(std::string text) {
  return {GgufValueType::kString, {}, 0, std::move(text)};
}

GgufValue GgufValue::of_strings(const std::vector<std::string>& texts) {
  GgufValue made{GgufValueType::kArray, GgufValueType::kString, texts.size(), {}};
  for (const std::string& text : texts) {
    append_value_bytes<std::uint64_t>(made.bytes, text.size());
    made.bytes += text;
  }
  return made;
}

std::optional<std::int64_t> GgufValue::whole_number() const {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kBool:
      return value_at<std::uint8_t>(bytes);
    case GgufValueType::kI8:
      return value_at<std::int8_t>(bytes);
    case GgufValueType::kU16:
      return value_at<std::uint16_t>(bytes);
    case GgufValueType::kI16:
      return value_at<std::int16_t>(bytes);
    case GgufValueType::kU32:
      return value_at<std::uint32_t>(bytes);
    case GgufValueType::kI32:
      return value_at<std::int32_t>(bytes);
    case GgufValueType::kI64:
      return value_at<std::int64_t>(bytes);
    case GgufValueType::kU64:
      if (value_at<std::uint64_t>(bytes) <= std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return value_at<std::int64_t>(bytes);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number() const {
  if (type == GgufValueType::kF32) return static_cast<double>(value_at<float>(bytes));
  if (type == GgufValueType::kF64) return value_at<double>(bytes);
  if (type == GgufValueType::kU64) return static_cast<double>(value_at<std::uint64_t>(bytes));
  if (const auto whole = whole_number()) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::text() const {
  if (type != GgufValueType::kString) return std::nullopt;
  return bytes;
}

std::optional<std::vector<std::string_view>> GgufValue::texts() const {
  if (type != GgufValueType::kArray || element != GgufValueType::kString) return std::nullopt;
  std::vector<std::string_view> found;
  for (std::size_t at = 0; found.size() < count;) {
    const auto length = value_at<std::uint64_t>(bytes, at);
    found.push_back(std::string_view(bytes).substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return found;
}

std::optional<std::vector<std::int64_t>> GgufValue::whole_numbers() const {
  const std::uint64_t size = gguf_scalar_bytes(element);
  if (type != GgufValueType::kArray || size == 0) return std::nullopt;
  std::vector<std::int64_t> found;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto number = GgufValue{element, {}, 0, bytes.substr(i * size, size)}.whole_number();
    if (!number) return std::nullopt;
    found.push_back(*number);
  }
  return found;
}

}  // namespace steelyard
