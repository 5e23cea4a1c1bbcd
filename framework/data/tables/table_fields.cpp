#include "steelyard/framework/data/tables/table_fields.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/float_range.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

constexpr const char* kBeyondFloat32 =
    " (float32 would round it: subtract an offset in the file, or divide)";

constexpr const char* kDecimalComma =
    " (numbers have a decimal point: replace the commas, such as by `sed 's/,/./g'` where another "
    "delimiter separates the fields)";

// Every double from 2^53 on is whole, and may be another number than the digits say.
bool is_whole_and_rounded(std::string_view number, double value) {
  constexpr double kAllAreWhole = 0x1p53;
  if (std::abs(value) < kAllAreWhole) return steelyard::is_whole_and_rounded(value);
  if (number.find_first_of(".eE") != std::string_view::npos) return false;
  number = number.substr(number.find_first_of("123456789"));
  const std::string_view digits = number.substr(0, number.find_last_of("0123456789") + 1);
  std::array<char, 64> held{};
  const char* end = std::to_chars(held.begin(), held.end(), std::abs(static_cast<float>(value)),
                                  std::chars_format::fixed, 0)
                        .ptr;
  return digits.find_last_not_of('0') >= FLT_DIG &&
         digits != std::string_view(held.data(), static_cast<std::size_t>(end - held.data()));
}

// A field without spaces around it and without a plus sign.
std::string_view bare_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

// Nothing unless the field is a number that float32 can come near to.
std::optional<double> finite_in_field(std::string_view text) {
  text = bare_number(text);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() || error == std::errc::result_out_of_range;
  // Too small or too large for a double, which from_chars() does not tell apart.
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(text).c_str(), nullptr);
  const bool holds = is_number && stop == end && !text.empty() &&
                     std::abs(value) <= std::numeric_limits<float>::max();
  return holds ? std::optional(value) : std::nullopt;
}

// Whether a point in the place of its comma makes the field a number.
bool has_decimal_comma(std::string_view text) {
  std::string pointed(text);
  const std::size_t comma = pointed.find(',');
  if (comma == std::string::npos) return false;
  pointed[comma] = '.';
  return finite_in_field(pointed).has_value();
}

float feature_of(const TableColumn& column, std::string_view text, bool is_missing) {
  if (is_missing && column.missing) return *column.missing;
  if (const auto value = number_in_field(text); value && !is_missing) return *value;
  throw InputError(no_number_text(column.name, text));
}

}  // namespace

std::string quoted_field(std::string_view text) {
  return std::string("'").append(printable(std::string(text), 60)).append("'");
}

bool is_among(const std::vector<std::string>& words, std::string_view text) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return trimmed(word) == trimmed(text); });
}

std::optional<float> number_in_field(std::string_view text) {
  const auto value = finite_in_field(text);
  if (!value || is_whole_and_rounded(text, *value)) return std::nullopt;
  return static_cast<float>(*value);
}

std::string no_number_text(const std::string& column, std::string_view text,
                           const std::string& advice) {
  const auto value = finite_in_field(text);
  const bool is_rounded = value && is_whole_and_rounded(text, *value);
  return "column " + quoted_field(column) + ": expected a finite number, got " +
         quoted_field(text) +
         (is_rounded                ? kBeyondFloat32
          : has_decimal_comma(text) ? kDecimalComma
                                    : advice);
}

std::string category_in_field(const std::string& column, std::string_view text,
                              const std::vector<std::string>& missing) {
  if (is_among(missing, text)) return "";
  const std::string_view category = trimmed(text);
  if (!category.empty()) return std::string(category);
  throw InputError("column " + quoted_field(column) +
                   ": the field is empty (with data.table.missing: [\"\"] that is a category of "
                   "its own)");
}

void encode_row(const std::vector<TableColumn>& columns, const std::vector<std::string>& missing,
                std::span<const std::string_view> fields, float* to) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const TableColumn& column = columns[i];
    const std::string_view text = fields[i];
    const bool is_missing = is_among(missing, text);
    if (column.categories.empty()) {
      *to++ = feature_of(column, text, is_missing);
      continue;
    }
    const std::int64_t category =
        label_of(column.categories, category_in_field(column.name, text, missing));
    if (category < 0) {
      throw InputError("column " + quoted_field(column.name) +
                       ": the training set has no category " +
                       (is_missing ? "for missing values" : quoted_field(text)));
    }
    std::fill_n(to, column.categories.size(), 0.0F);
    to[category] = 1;
    to += column.categories.size();
  }
}

}  // namespace steelyard
