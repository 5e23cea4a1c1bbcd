// Integers in JSON documents from untrusted sources.
#pragma once

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace steelyard {

// The value for a message: arrays and objects by their name only, since dump() calls itself for
// each level and a file may have a million.
template <typename Json>
std::string described(const Json& json) {
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump();
}

// The value as T. Throws std::invalid_argument unless it is an integer that T holds: nlohmann's
// get() cuts off fractions and high bits, and a large float has no defined result.
template <std::integral T, typename Json>
T integer_of(const Json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.template get<std::uint64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  } else if (json.is_number_integer()) {
    const auto value = json.template get<std::int64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  }
  throw std::invalid_argument("expected an integer of " + std::to_string(8 * sizeof(T)) +
                              " bits, got " + described(json));
}

// The integers of an array. Throws as integer_of().
template <std::integral T, typename Json>
std::vector<T> integers_of(const Json& json) {
  if (!json.is_array()) throw std::invalid_argument("expected integers, got " + described(json));
  std::vector<T> values;
  for (const Json& item : json) values.push_back(integer_of<T>(item));
  return values;
}

}  // namespace steelyard
