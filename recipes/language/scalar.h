// Strict text forms of scalars, and the words of error messages about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

// Decimal only, no leading zeros, no plus sign: "010", "0x10" and "1_000" give nothing; neither
// does a value beyond 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text);

// JSON's number syntax ("5e-4", "0.1", "3"); nothing for other text and for values that a double
// cannot hold.
std::optional<double> parse_number(std::string_view text);

// Why a text that other programs would read as a number is none for the two functions above, for
// the end of a message: " (a number has no leading zeros)"; "" for any other text.
std::string why_not_a_number(std::string_view text);

// "true" or "false" and no other spelling.
std::optional<bool> parse_boolean(std::string_view text);

// The shortest text that parse_number() turns back into `value`.
std::string format_number(double value);

// 'text' for a one-line message: control characters escaped, about 60 bytes kept.
std::string quote_for_message(std::string_view text);

// " (did you mean 'num_bits'?)", or nothing when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace steelyard
