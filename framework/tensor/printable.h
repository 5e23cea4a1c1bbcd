// Printable forms of text that comes from a file or a user.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace steelyard {

// Length in bytes of the UTF-8 character that `text` starts with, or 0 when there is none (RFC
// 3629).
std::size_t utf8_length(std::string_view text);

// Whether text is UTF-8 from end to end, as names in checkpoints and exports are.
bool is_utf8(std::string_view text);

// The character of utf8_length() bytes that `text` starts with.
char32_t utf8_character(std::string_view text);

// Whether a terminal may act on the character instead of showing it: C0 and C1 controls, DEL, line
// separators, and the marks that change the order of text (Bidi_Control of Unicode's UAX #9).
bool is_control(char32_t character);

// No path in Linux is longer.
inline constexpr std::size_t kMaxPathBytes = 4096;

// `text` fit for a one-line message: control characters and bytes that are not UTF-8 escaped as
// \x1b, cut after about `max_bytes`.
std::string printable(std::string_view text, std::size_t max_bytes = 200);

// JSON as it is dumped, in which the control characters that JSON leaves as they are have become
// escapes such as \u009b. Means the same.
std::string printable_json(std::string_view json);

}  // namespace steelyard
