// Rows that bind a recipe's key to the member of a struct that its value goes to.
//
// A row is the only declaration of a key: its name, help, limits and default (an option of
// option_table.h, from which the parser, the resolved text, the schema and the documentation come)
// and where the value goes. What kind of value it takes follows from the member's type; its default
// is the member's own unless the row gives another:
//
//   Table<SgdOptions> table("Stochastic gradient descent.",
//                           {key("momentum", "of the gradients", &SgdOptions::momentum)
//                                .by_default("0.9").within(0, 0.9999),
//                            key("nesterov", "Nesterov's", &SgdOptions::nesterov).by_default()});
//   SgdOptions options;
//   table.read(resolve_options(node, table.option(), ""), options);
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/words.h"
#include "steelyard/recipes/language/option_table.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

// The option of values of type V: bool, whole numbers, double, texts, enumerations with words, two
// whole numbers (one stands for both), two doubles, lists of those; an optional value is one that
// may be absent.
template <typename V>
RecipeOption option_of() {
  RecipeOption option;
  if constexpr (kIsOptional<V>) {
    return option_of<typename V::value_type>();
  } else if constexpr (kIsVector<V>) {
    option.kind = OptionKind::kList;
    option.members = {option_of<typename V::value_type>()};
  } else if constexpr (std::is_enum_v<V>) {
    option.kind = OptionKind::kChoice;
    option.choices = all_words<V>();
  } else if constexpr (std::is_same_v<V, bool>) {
    option.kind = OptionKind::kBoolean;
  } else if constexpr (std::is_integral_v<V>) {
    option.kind = OptionKind::kInteger;
  } else if constexpr (std::is_floating_point_v<V>) {
    option.kind = OptionKind::kNumber;
  } else if constexpr (std::is_same_v<V, std::array<std::int64_t, 2>>) {
    option.kind = OptionKind::kPair;
  } else if constexpr (std::is_same_v<V, std::array<double, 2>>) {
    option = option_of<std::vector<double>>();
    option.min_items = option.max_items = 2;
  } else {
    static_assert(std::is_same_v<V, std::string>);
  }
  return option;
}

// The value of a resolved node.
template <typename V>
V value_in(const YamlNode& node) {
  if constexpr (kIsOptional<V>) {
    return value_in<typename V::value_type>(node);
  } else if constexpr (kIsVector<V>) {
    V values;
    for (const YamlNode& item : node.items) {
      values.push_back(value_in<typename V::value_type>(item));
    }
    return values;
  } else if constexpr (std::is_enum_v<V>) {
    return value_of<V>(node.text);
  } else if constexpr (std::is_same_v<V, bool>) {
    return boolean_in(node);
  } else if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(integer_in(node));
  } else if constexpr (std::is_floating_point_v<V>) {
    return number_in(node);
  } else if constexpr (std::is_same_v<V, std::array<std::int64_t, 2>>) {
    return {integer_in(node.items.at(0)), integer_in(node.items.at(1))};
  } else if constexpr (std::is_same_v<V, std::array<double, 2>>) {
    return {number_in(node.items.at(0)), number_in(node.items.at(1))};
  } else {
    return node.text;
  }
}

// A value as a recipe's text; a pair by its first number, a text as one that needs no quotes.
template <typename V>
std::string yaml_of(const V& value) {
  if constexpr (kIsVector<V> || std::is_same_v<V, std::array<double, 2>>) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(yaml_of(item));
    return "[" + join(items) + "]";
  } else if constexpr (std::is_enum_v<V>) {
    return word_of(value);
  } else if constexpr (std::is_same_v<V, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<V>) {
    return std::to_string(value);
  } else if constexpr (std::is_floating_point_v<V>) {
    return format_number(value);
  } else if constexpr (std::is_same_v<V, std::array<std::int64_t, 2>>) {
    return std::to_string(value[0]);
  } else {
    return value;
  }
}

template <typename V>
V& filled(V& value) {
  return value;
}
template <typename V>
V& filled(std::optional<V>& value) {
  return value ? *value : value.emplace();
}

// The member of a member of `from`; what is optional on the way is made.
template <typename T>
T& reach(T& from) {
  return from;
}
template <typename T, typename Class, typename V, typename... Rest>
auto& reach(T& from, V Class::*first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return from.*first;
  } else {
    return reach(filled(from.*first), rest...);
  }
}

template <typename T, typename... Members>
using Reached = std::remove_reference_t<decltype(reach(std::declval<T&>(), Members()...))>;

// An option, and what its value does to a T. What changes a row returns it.
template <typename T>
struct Row {
  using Store = std::function<void(const YamlNode& resolved, T& to)>;

  RecipeOption option = {};
  std::vector<Store> stores = {};
  std::function<std::string()> initial = {};  // the member's value in a new T

  Row required() {
    return with([](RecipeOption& o) { o.required = true; });
  }
  Row by_default(const std::string& yaml) {
    return with([&](RecipeOption& o) { o.default_yaml = yaml; });
  }
  Row by_default() { return by_default(initial()); }
  Row at_least(double min) {
    return with([&](RecipeOption& o) { scalar(o).min = min; });
  }
  Row at_most(double max) {
    return with([&](RecipeOption& o) { scalar(o).max = max; });
  }
  Row within(double min, double max) { return at_least(min).at_most(max); }
  Row above(double min) {
    return at_least(min).with([](RecipeOption& o) { scalar(o).above_min = true; });
  }
  // How many items a list may have.
  Row items(std::size_t min, std::size_t max = RecipeOption{}.max_items) {
    return with([&](RecipeOption& o) {
      o.min_items = min;
      o.max_items = max;
    });
  }
  // An item alone stands for a list of it.
  Row or_one() {
    return with([](RecipeOption& o) { o.or_one = true; });
  }
  // Allows an empty text, for an option of texts or of a list of them.
  Row may_be_empty() {
    return with([](RecipeOption& o) { scalar(o).may_be_empty = true; });
  }
  Row matching(const std::string& pattern, const std::string& pattern_help) {
    return with([&](RecipeOption& o) {
      o.pattern = pattern;
      o.pattern_help = pattern_help;
    });
  }
  // These words of the enumeration alone, in this order.
  template <typename E>
  Row only(std::initializer_list<E> values) {
    return with([&](RecipeOption& o) {
      o.choices.clear();
      for (const E value : values) o.choices.push_back(word_of(value));
    });
  }
  Row needs(const std::string& root_key) {
    return with([&](RecipeOption& o) { o.needs = root_key; });
  }
  Row role(OptionRole role) {
    return with([&](RecipeOption& o) { o.role = role; });
  }

  // The value goes to a further member.
  template <typename V, typename Class, typename... Rest>
  Row also(V Class::*first, Rest... rest) {
    using Value = Reached<T, V Class::*, Rest...>;
    stores.push_back(
        [=](const YamlNode& node, T& to) { reach(to, first, rest...) = value_in<Value>(node); });
    return *this;
  }
  // Where the items of the list stood, for messages.
  template <typename V, typename Class, typename... Rest>
  Row places(V Class::*first, Rest... rest) {
    stores.push_back([=](const YamlNode& node, T& to) {
      for (const YamlNode& item : node.items) reach(to, first, rest...).push_back(item.place);
    });
    return *this;
  }
  Row with(const std::function<void(RecipeOption&)>& change) {
    change(option);
    return *this;
  }

 private:
  // Limits of a list of numbers are its items'.
  static RecipeOption& scalar(RecipeOption& o) {
    const bool list = o.kind == OptionKind::kList || o.kind == OptionKind::kChoiceOrList;
    return list ? o.members.at(0) : o;
  }
};

// A key whose value goes to a member, or a member of a member, of T.
template <typename T, typename V, typename... Rest>
Row<T> key(const std::string& name, const std::string& help, V T::*first, Rest... rest) {
  using Value = Reached<T, V T::*, Rest...>;
  Row<T> row{option_of<Value>()};
  row.option.name = name;
  row.option.help = help;
  if constexpr (!kIsOptional<Value>) {
    row.initial = [=] {
      T made;
      return yaml_of(reach(made, first, rest...));
    };
  }
  return row.also(first, rest...);
}

// A key whose value of type V goes where `store` says.
template <typename V, typename T>
Row<T> key_of(const std::string& name, const std::string& help, void (*store)(T& to, V value)) {
  Row<T> row{option_of<V>()};
  row.option.name = name;
  row.option.help = help;
  row.stores.push_back([store](const YamlNode& node, T& to) { store(to, value_in<V>(node)); });
  return row;
}

// Words for the values of a member that is no enumeration.
template <typename T, typename V, typename... Rest>
Row<T> words_key(const std::string& name, const std::string& help,
                 const std::vector<std::pair<std::string, Reached<T, V T::*, Rest...>>>& words,
                 V T::*first, Rest... rest) {
  Row<T> row{{.name = name, .kind = OptionKind::kChoice, .help = help}};
  for (const auto& [word, value] : words) row.option.choices.push_back(word);
  row.stores.push_back([=](const YamlNode& node, T& to) {
    for (const auto& [word, value] : words) {
      if (word == node.text) reach(to, first, rest...) = value;
    }
  });
  return row;
}

// A list, or a word that sets a flag of the T.
template <typename T, typename U, typename V>
Row<T> list_or_word(const std::string& name, const std::string& help, const std::string& word,
                    U T::*member, std::vector<V> U::*list, bool U::*flag) {
  Row<T> row{{.name = name,
              .kind = OptionKind::kChoiceOrList,
              .help = help,
              .choices = {word},
              .members = {option_of<V>()}}};
  row.stores.push_back([=](const YamlNode& node, T& to) {
    U& value = to.*member;
    if (node.kind == YamlNode::Kind::kList) {
      value.*list = value_in<std::vector<V>>(node);
    } else {
      value.*flag = true;
    }
  });
  return row;
}

// A word of a list of them, which switches something on.
template <typename T>
struct Flag {
  std::string word;
  std::function<bool&(T&)> flag;
};

template <typename T, typename V, typename... Rest>
Flag<T> flag(const std::string& word, V T::*first, Rest... rest) {
  return {word, [=](T& to) -> bool& { return reach(to, first, rest...); }};
}

template <typename T>
Row<T> flags(const std::string& name, const std::string& help, const std::vector<Flag<T>>& flags) {
  RecipeOption word{.kind = OptionKind::kChoice};
  for (const Flag<T>& flag : flags) word.choices.push_back(flag.word);
  Row<T> row{{.name = name, .kind = OptionKind::kList, .help = help, .members = {word}}};
  row.stores.push_back([flags](const YamlNode& node, T& to) {
    for (const YamlNode& item : node.items) {
      for (const Flag<T>& flag : flags) {
        if (flag.word == item.text) flag.flag(to) = true;
      }
    }
  });
  return row;
}

// Further rows of a table where its discriminator has a value.
template <typename T>
struct TableCase {
  std::string value;
  std::string help = {};
  std::vector<Row<T>> rows = {};
};

// The rows of a value of an enumeration, whose word and help the table of words has.
template <typename E, typename T>
TableCase<T> when(E value, std::vector<Row<T>> rows) {
  const Word<E>& word = row_of(value);
  return {std::string(word.word), std::string(word.help), std::move(rows)};
}

// The rows of a struct.
template <typename T>
class Table {
 public:
  // What holds across keys is checked after they were read; it throws InputError.
  using Check = std::function<void(const OptionReader& from, T& to)>;

  Table(const std::string& help, std::vector<Row<T>> rows) : rows_(std::move(rows)) {
    option_.kind = OptionKind::kTable;
    option_.help = help;
    for (const Row<T>& row : rows_) option_.members.push_back(row.option);
  }

  // Further rows that depend on the value of the key `discriminator`, one of the rows above.
  Table cases(const std::string& discriminator, std::vector<TableCase<T>> cases) {
    auto options = std::make_shared<OptionCases>();
    for (const TableCase<T>& c : cases) {
      OptionCase& added = options->cases.emplace_back(OptionCase{c.value, c.help, {}});
      for (const Row<T>& row : c.rows) added.options.push_back(row.option);
    }
    cases_ = std::move(cases);
    return this->cases(discriminator, std::move(options));
  }
  // cases() of rows that are read elsewhere.
  Table cases(const std::string& discriminator, std::shared_ptr<const OptionCases> options) {
    // The key's own choices are those cases.
    for (RecipeOption& member : option_.members) {
      if (member.name != discriminator) continue;
      member.kind = OptionKind::kChoice;
      member.choices.clear();
    }
    return add_cases(discriminator, std::move(options));
  }
  // Further rows for some values of a key; its other values have none.
  Table some_cases(const std::string& discriminator, OptionCases cases) {
    if (cases.cases.empty()) return *this;
    return add_cases(discriminator, std::make_shared<const OptionCases>(std::move(cases)));
  }
  Table check(Check check) {
    check_ = std::move(check);
    return *this;
  }

  const RecipeOption& option() const { return option_; }

  void read(const YamlNode& resolved, T& to) const {
    read_rows(rows_, resolved, to);
    const YamlNode* chosen = cases_.empty() ? nullptr : resolved.find(option_.discriminator);
    for (const TableCase<T>& c : cases_) {
      if (chosen != nullptr && chosen->text == c.value) read_rows(c.rows, resolved, to);
    }
    if (check_) check_(OptionReader(resolved), to);
  }
  T read(const YamlNode& resolved) const {
    T value;
    read(resolved, value);
    return value;
  }

 private:
  // Throws std::invalid_argument for a case's option that has the name of a key of the table.
  Table add_cases(const std::string& discriminator, std::shared_ptr<const OptionCases> options) {
    for (const OptionCase& c : options->cases) require_other_names(option_.members, c);
    option_.discriminator = discriminator;
    option_.cases = std::move(options);
    return *this;
  }

  static void read_rows(const std::vector<Row<T>>& rows, const YamlNode& resolved, T& to) {
    for (const Row<T>& row : rows) {
      const YamlNode* value = resolved.find(row.option.name);
      if (value == nullptr) continue;
      for (const auto& store : row.stores) store(*value, to);
    }
  }

  RecipeOption option_;
  std::vector<Row<T>> rows_;
  std::vector<TableCase<T>> cases_;
  Check check_;
};

// The key of a nested table whose struct is a member of T, or T itself without members.
template <typename T, typename U, typename... Members>
Row<T> nested(const std::string& name, const Table<U>& table, Members... members) {
  Row<T> row{table.option()};
  row.option.name = name;
  row.stores.push_back(
      [=](const YamlNode& node, T& to) { table.read(node, filled(reach(to, members...))); });
  return row;
}

// The key of a list of tables, each an item of a member of T.
template <typename U, typename T, typename V, typename... Rest>
Row<T> list_of(const std::string& name, const std::string& help, const Table<U>& table, V T::*first,
               Rest... rest) {
  Row<T> row{{.name = name, .kind = OptionKind::kList, .help = help, .members = {table.option()}}};
  row.stores.push_back([=](const YamlNode& node, T& to) {
    for (const YamlNode& item : node.items) {
      reach(to, first, rest...).push_back(table.read(item));
    }
  });
  return row;
}

}  // namespace steelyard
