// The options of layers by name, as stored graphs and checkpoints have them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {

using OptionValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                 std::vector<double>>;
using StoredOptions = std::map<std::string, OptionValue>;

namespace stored {

// How a member of a struct of options is stored: an array as a list, an optional only if it is
// there, an enumeration as its word, others as they are.
template <typename T>
void put(StoredOptions& to, const char* name, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    to[name] = word_of(value);
  } else {
    to[name] = value;
  }
}
template <std::size_t count>
void put(StoredOptions& to, const char* name, const std::array<std::int64_t, count>& value) {
  to[name] = std::vector<std::int64_t>(value.begin(), value.end());
}
template <typename T>
void put(StoredOptions& to, const char* name, const std::optional<T>& value) {
  if (value) put(to, name, *value);
}

template <typename T>
const T& held(const OptionValue& value, const std::string& name) {
  if (const T* as = std::get_if<T>(&value)) return *as;
  throw std::invalid_argument("the option '" + name + "' is of another kind");
}
template <typename T>
void take(const OptionValue& from, const std::string& name, T& value) {
  if constexpr (std::is_enum_v<T>) {
    value = value_of<T>(held<std::string>(from, name));
  } else {
    value = held<T>(from, name);
  }
}
template <std::size_t count>
void take(const OptionValue& from, const std::string& name,
          std::array<std::int64_t, count>& value) {
  const auto& list = held<std::vector<std::int64_t>>(from, name);
  if (list.size() != count) {
    throw std::invalid_argument("expected " + std::to_string(count) + " integers for '" + name +
                                "', got " + std::to_string(list.size()));
  }
  std::copy(list.begin(), list.end(), value.begin());
}
template <typename T>
void take(const OptionValue& from, const std::string& name, std::optional<T>& value) {
  take(from, name, value.emplace());
}

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

}  // namespace stored

// The options as they are stored: without optional fields that are as in `usual`.
template <typename S>
StoredOptions stored_options(const S& options, const S& usual = {}) {
  StoredOptions result;
  for_each_field<S>([&](const auto& field) {
    const auto& value = field.get(options);
    if (!field.optional || value != field.get(usual)) stored::put(result, field.name, value);
  });
  return result;
}

// Back; optional fields that are not there are as in `usual`. Throws std::invalid_argument naming
// an option that is missing or of another kind.
template <typename S>
S options_from(const StoredOptions& from, const S& usual = {}) {
  S options = usual;
  for_each_field<S>([&](const auto& field) {
    auto& value = field.get(options);
    const auto found = from.find(field.name);
    if (found != from.end()) {
      stored::take(found->second, field.name, value);
    } else if (!field.optional && !stored::kIsOptional<std::decay_t<decltype(value)>>) {
      throw std::invalid_argument(std::string("the option '") + field.name + "' is missing");
    }
  });
  return options;
}

}  // namespace steelyard
