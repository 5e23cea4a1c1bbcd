#include "steelyard/export/c/c_text.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace steelyard::deploy {

std::string c_literal(float value) {
  if (!std::isfinite(value)) throw std::invalid_argument("[c_header] a number is not finite");
  return fmt::format("{:.8e}f", value);
}

std::string c_literal(std::int32_t value) {
  // The smallest int32 is no literal of C: -2147483648 negates a long.
  return value == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("{}", value);
}

std::string c_literal(std::int8_t value) { return fmt::format("{}", int{value}); }
std::string c_literal(std::uint8_t value) { return fmt::format("{}", unsigned{value}); }

std::string c_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e || c == '"' || c == '\\' || c == '?') {
      out += fmt::format("\\{:03o}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string c_comment(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = c >= 0x20 && c < 0x7f && c != '*' && c != '\\' && c != '?';
    out += plain ? c : '_';
  }
  return out;
}

std::string c_json(const nlohmann::ordered_json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)) {
    const bool is_plain = c != '*' && c != '?';
    text += is_plain ? std::string(1, c) : fmt::format("\\u{:04x}", static_cast<int>(c));
  }
  return text;
}

}  // namespace steelyard::deploy
