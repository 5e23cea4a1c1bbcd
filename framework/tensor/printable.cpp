#include "steelyard/framework/tensor/printable.h"

#include <algorithm>

namespace steelyard {

namespace {

constexpr char kHex[] = "0123456789abcdef";

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (first == 0xED && byte(1) > 0x9F) return 0;  // surrogates
  if (first == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (first == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

char32_t utf8_character(std::string_view text) {
  const std::size_t length = utf8_length(text);
  if (length == 0) return U'\uFFFD';
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t character = length == 1 ? first : first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return character;
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const std::size_t length = utf8_length(text);
    if (length > 0 && !is_control(utf8_character(text))) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    for (std::size_t i = 0; i < (length > 0 ? length : 1); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

std::string printable_json(std::string_view json) {
  std::string out;
  while (!json.empty()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(json));
    const char32_t c = utf8_character(json);
    // Below U+007F, strings hold none, and what lies between them may. The others have 4 digits.
    if (c >= 0x7F && is_control(c)) {
      out += {'\\', 'u', kHex[c >> 12], kHex[c >> 8 & 15], kHex[c >> 4 & 15], kHex[c & 15]};
    } else {
      out += json.substr(0, length);
    }
    json.remove_prefix(length);
  }
  return out;
}

}  // namespace steelyard
