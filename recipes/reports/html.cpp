#include "steelyard/recipes/reports/html.h"

#include <fmt/core.h>

#include <cstdint>

#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {

std::string html_escaped(std::string_view words) {
  std::string out;
  for (const char c : printable(words, words.size() * 4 + 16)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? kLetters[bits >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

std::string share_rules() {
  std::string css;
  for (int percent = 0; percent <= 100; ++percent) {
    css += fmt::format(".s{0} {{ --share: {0}%; }}\n", percent);
  }
  return css;
}

std::string share_class(double share) { return fmt::format("s{:.0f}", 100 * share); }

std::string policy_and_style(const std::string& css) {
  const std::string digits = sha256_of(css);
  std::string hash;
  for (std::size_t at = 0; at < digits.size(); at += 2) {
    hash += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
  }
  return "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'sha256-" +
         base64(hash) + "'; img-src data:; base-uri 'none'; form-action 'none'\">\n<style>" + css +
         "</style>\n";
}

}  // namespace steelyard
