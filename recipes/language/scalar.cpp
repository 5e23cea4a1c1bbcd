#include "steelyard/recipes/language/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes leading digits and returns their number.
std::size_t take_digits(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  text.remove_prefix(count);
  return count;
}

// Removes "-" and an integer without leading zeros; false when there is none.
bool take_integer(std::string_view& text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const std::size_t digits = take_digits(text);
  return digits == 1 || (digits > 1 && !zero);
}

bool take_exponent(std::string_view& text) {
  text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return take_digits(text) > 0;
}

bool is_number_text(std::string_view text) {
  if (!take_integer(text)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (take_digits(text) == 0) return false;
  }
  if ((text.starts_with('e') || text.starts_with('E')) && !take_exponent(text)) return false;
  return text.empty();
}

template <typename T>
std::optional<T> convert(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::string_view rest = text;
  if (!take_integer(rest) || !rest.empty()) return std::nullopt;
  return convert<std::int64_t>(text);
}

std::optional<double> parse_number(std::string_view text) {
  if (!is_number_text(text)) return std::nullopt;
  return convert<double>(text);
}

std::string why_not_a_number(std::string_view text) {
  if (is_number_text(text)) return "";
  const bool negative = text.starts_with('-');
  std::string digits(text.substr(negative || text.starts_with('+') ? 1 : 0));
  if (digits.starts_with('.') && is_number_text("0" + digits)) {
    return " (write " + std::string(negative ? "-0" : "0") + digits + ")";
  }
  if (is_number_text(digits)) return " (a number has no plus sign)";
  const std::size_t zeros = digits.find_first_not_of('0');
  const bool leading = zeros != 0 && zeros != std::string::npos &&
                       is_number_text(std::string_view(digits).substr(zeros));
  return leading ? " (a number has no leading zeros)" : "";
}

std::optional<bool> parse_boolean(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string format_number(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

std::string quote_for_message(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string quoted = "'";
  quoted += printable(text, kLongest);
  return quoted += "'";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_word(word, candidates);
  return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string all;
  for (const std::string& word : words) {
    if (!all.empty()) all += separator;
    all += word;
  }
  return all;
}

}  // namespace steelyard
