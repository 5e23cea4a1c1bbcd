// Pieces of C text, whatever names a model has.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace steelyard::deploy {

// A literal of C. Floats have nine digits, from which a compiler reads the same bits; throws
// std::invalid_argument for one that is not finite.
std::string c_literal(float value);
std::string c_literal(std::int32_t value);
std::string c_literal(std::int8_t value);
std::string c_literal(std::uint8_t value);

// The literals of a list, sixteen a line.
template <typename T>
std::string c_list(std::span<const T> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += i == 0 ? "" : i % 16 == 0 ? ",\n  " : ", ";
    text += c_literal(values[i]);
  }
  return text;
}

// A string in quotes.
std::string c_string(std::string_view text);
// The text for a comment, which nothing in it can end.
std::string c_comment(std::string_view text);
// JSON on one line for a comment, with escapes for what C might read otherwise.
std::string c_json(const nlohmann::ordered_json& json);

}  // namespace steelyard::deploy
