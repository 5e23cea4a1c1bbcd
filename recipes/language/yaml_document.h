// YAML text as a tree that remembers where everything stood.
//
// Recipes are untrusted input: the limits below are counted from the parser's events, before nodes
// are built, and everything YAML has beyond tables, lists and scalars (anchors, aliases, tags,
// merge keys, several documents) is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/error.h"

namespace steelyard {

inline constexpr std::size_t kMaxYamlBytes = 1024 * 1024;
inline constexpr int kMaxYamlDepth = 32;
inline constexpr int kMaxYamlNodes = 40'000;

// A key and its value. A template, so that a node can hold entries of its own type.
template <typename Node>
struct BasicYamlEntry {
  std::string key;
  std::string place;  // of the key
  Node value;
};

// One value. `place` is the start of messages about it: "recipe.yaml:12:7" or "--set train.epochs".
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kTable };

  Kind kind = Kind::kNull;
  std::string text = {};  // scalars
  bool quoted = false;    // scalars: written in quotes, or checked to be one: a string
  std::string place = {};
  std::vector<YamlNode> items = {};                    // lists
  std::vector<BasicYamlEntry<YamlNode>> entries = {};  // tables, in the order of the text

  // The value of a table's key, or null.
  const YamlNode* find(std::string_view key) const;
  YamlNode* find(std::string_view key);

  // Whether the values are the same; places and quoting do not count.
  bool operator==(const YamlNode& other) const;
};

using YamlEntry = BasicYamlEntry<YamlNode>;

// Parses one document. `source` names it in messages: "recipe.yaml:12:7: ...". Throws InputError.
YamlNode parse_yaml(std::string_view text, const std::string& source);

// Parses a value that stood in one place, such as a command-line argument.
YamlNode parse_yaml_at(std::string_view text, const std::string& place);

// The tree as YAML text that other readers understand alike: tables in block style, lists of
// scalars on one line. Quoted scalars keep their quotes where one could take them for something
// else; numbers with an exponent get a point.
std::string to_yaml(const YamlNode& node);

// Throws InputError "place: message"; a key that both begin with is named once.
[[noreturn]] void fail_at(const std::string& place, const std::string& message);

// Runs `f`; its errors are reported at `place` of the recipe.
template <typename F>
auto at_place(const std::string& place, const F& f) {
  try {
    return f();
  } catch (const InputError& error) {
    fail_at(place, error.what());
  }
}

// The value of a node, for messages: 'abc', a list, a table, nothing.
std::string describe_value(const YamlNode& node);

}  // namespace steelyard
