#include "steelyard/recipes/text/language_tokenizer.h"

namespace steelyard {
namespace {

// The byte that a character of byte-level BPE stands for: bytes that print are themselves, the
// others have the characters from 256 on, in their order (GPT-2's encoder.py).
std::optional<std::uint8_t> byte_of(std::uint32_t character) {
  const auto prints = [](std::uint32_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 255 && byte != 173);
  };
  if (character < 256) {
    return prints(character) ? std::optional(static_cast<std::uint8_t>(character)) : std::nullopt;
  }
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (prints(byte)) continue;
    if (next++ == character) return static_cast<std::uint8_t>(byte);
  }
  return std::nullopt;
}

}  // namespace

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const auto first = static_cast<std::uint8_t>(token[i]);
    const bool two = first >= 0xC2 && first <= 0xDF && i + 1 < token.size();
    const std::uint32_t character =
        two ? (first & 0x1FU) << 6 | (static_cast<std::uint8_t>(token[i + 1]) & 0x3FU) : first;
    const auto byte = first < 0x80 || two ? byte_of(character) : std::nullopt;
    if (byte) {
      bytes += static_cast<char>(*byte);
    } else {
      bytes += token.substr(i, two ? 2 : 1);
    }
    i += two ? 1 : 0;
  }
  return bytes;
}

}  // namespace steelyard
