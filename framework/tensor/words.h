// The names of enumeration values: one table for each enumeration, for reading, writing, help and
// messages.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

// A row. An enumeration E has words where `words_of(E)`, in E's namespace, gives its table.
template <typename E>
struct Word {
  E value;
  std::string_view word;
  std::string_view help = {};
};

// Whether a table of any rows has one with every `value` from the first on, in order: to be
// asserted next to the table, with the last value of the enumeration.
template <typename E>
constexpr bool has_every_value(const auto& table, E last) {
  if (std::size(table) != static_cast<std::size_t>(last) + 1) return false;
  for (std::size_t i = 0; i < std::size(table); ++i) {
    if (static_cast<std::size_t>(table[i].value) != i) return false;
  }
  return true;
}

// Whether a table of words has every value, as has_every_value(), and no word stands for two
// values.
template <typename E>
constexpr bool is_complete(std::span<const Word<E>> table, E last) {
  if (!has_every_value(table, last)) return false;
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (table[i].word == table[j].word) return false;
    }
  }
  return true;
}

// Errors of the functions below, apart: programs include this header that have no exceptions.
[[noreturn]] void throw_no_row(long long value);
[[noreturn]] void throw_unknown_word(const std::string& known, std::string_view word);

// The row of a value in a table of any rows. Throws std::logic_error for a value without one.
template <typename E>
const auto& row_in(const auto& table, E value) {
  for (const auto& row : table) {
    if (row.value == value) return row;
  }
  throw_no_row(static_cast<long long>(value));
}

template <typename E>
const Word<E>& row_of(E value) {
  return row_in(words_of(E{}), value);
}

template <typename E>
std::string word_of(E value) {
  return std::string(row_of(value).word);
}

// Every word, in the table's order.
template <typename E>
std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const Word<E>& row : words_of(E{})) words.emplace_back(row.word);
  return words;
}

// The value that a word stands for. Throws std::invalid_argument that lists the words for another.
template <typename E>
E value_of(std::string_view word) {
  std::string known;
  for (const Word<E>& row : words_of(E{})) {
    if (row.word == word) return row.value;
    known.append(known.empty() ? "" : ", ").append(row.word);
  }
  throw_unknown_word(known, word);
}

// A row of an enumeration whose values are operations.
template <typename E>
struct OpNames {
  E value;
  const char* operation;  // on the tape
  const char* layer;      // the type of its layer
};

}  // namespace steelyard
