#include "steelyard/recipes/language/option_table.h"

#include <regex.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

constexpr std::size_t kLongestString = 4096;
constexpr std::size_t kLongestPatternString = 200;  // bounds the work of matching

[[noreturn]] void fail_value(const YamlNode& node, const RecipeOption& option,
                             const std::string& hint = "") {
  fail_at(node.place,
          "expected " + describe_expectation(option) + ", got " + describe_value(node) + hint);
}

void require_scalar(const YamlNode& node, const RecipeOption& option, bool quotes_allowed) {
  if (node.kind != YamlNode::Kind::kScalar || (node.quoted && !quotes_allowed)) {
    fail_value(node, option);
  }
}

template <typename T>
bool in_range(T value, const RecipeOption& option) {
  const auto x = static_cast<double>(value);
  if (option.min && (option.above_min ? x <= *option.min : x < *option.min)) return false;
  return !option.max || x <= *option.max;
}

YamlNode scalar(const YamlNode& from, std::string text) {
  return {.kind = YamlNode::Kind::kScalar, .text = std::move(text), .place = from.place};
}

// Quotes a text if other readers of YAML would take it for something else.
YamlNode text_scalar(const YamlNode& from) {
  YamlNode node = scalar(from, from.text);
  node.quoted = true;
  return node;
}

// The bounds of a whole number without bounds of its own.
std::string beyond_64_bits(const std::string& text, const RecipeOption& option) {
  const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
  if (option.max || !whole || !parse_number(text)) return "";
  return " (at most " + std::to_string(std::numeric_limits<std::int64_t>::max()) + ")";
}

YamlNode resolve_integer(const YamlNode& node, const RecipeOption& option) {
  require_scalar(node, option, false);
  const std::optional<std::int64_t> value = parse_integer(node.text);
  if (!value) {
    fail_value(node, option, why_not_a_number(node.text) + beyond_64_bits(node.text, option));
  }
  if (!in_range(*value, option)) fail_value(node, option);
  return scalar(node, std::to_string(*value));
}

YamlNode resolve_number(const YamlNode& node, const RecipeOption& option) {
  require_scalar(node, option, false);
  const std::optional<double> value = parse_number(node.text);
  if (!value) fail_value(node, option, why_not_a_number(node.text));
  if (!in_range(*value, option)) fail_value(node, option);
  return scalar(node, format_number(*value));
}

YamlNode resolve_boolean(const YamlNode& node, const RecipeOption& option) {
  require_scalar(node, option, false);
  if (!parse_boolean(node.text)) fail_value(node, option);
  return scalar(node, node.text);
}

YamlNode resolve_choice(const YamlNode& node, const RecipeOption& option) {
  require_scalar(node, option, true);
  if (std::find(option.choices.begin(), option.choices.end(), node.text) == option.choices.end()) {
    fail_value(node, option, did_you_mean(node.text, option.choices));
  }
  return text_scalar(node);
}

// Whether the POSIX extended regular expression matches all of `text`. (std::regex does not compile
// without warnings under gcc 12's sanitizers.)
bool matches(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  if (regcomp(&compiled, ("^(" + pattern + ")$").c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
    throw std::logic_error("[options] bad pattern '" + pattern + "'");
  }
  const bool matched = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return matched;
}

YamlNode resolve_string(const YamlNode& node, const RecipeOption& option) {
  require_scalar(node, option, true);
  // NUL is refused: patterns and paths would end there.
  const bool has_nul = node.text.find('\0') != std::string::npos;
  if ((node.text.empty() && !option.may_be_empty) || has_nul) fail_value(node, option);
  const std::size_t longest = option.pattern.empty() ? kLongestString : kLongestPatternString;
  if (node.text.size() > longest) {
    fail_value(node, option,
               " (" + std::to_string(node.text.size()) + " bytes, at most " +
                   std::to_string(longest) + " are allowed)");
  }
  if (!option.pattern.empty() && !matches(node.text, option.pattern)) fail_value(node, option);
  return text_scalar(node);
}

YamlNode resolve_pair(const YamlNode& node, const RecipeOption& option) {
  YamlNode pair{.kind = YamlNode::Kind::kList, .place = node.place};
  if (node.kind == YamlNode::Kind::kScalar) {
    pair.items.assign(2, resolve_integer(node, option));
    return pair;
  }
  if (node.kind != YamlNode::Kind::kList || node.items.size() != 2) fail_value(node, option);
  for (const YamlNode& item : node.items) pair.items.push_back(resolve_integer(item, option));
  return pair;
}

YamlNode resolve_value(const YamlNode& node, const RecipeOption& option, const std::string& path);

YamlNode resolve_list(const YamlNode& node, const RecipeOption& option, const std::string& path) {
  if (node.kind != YamlNode::Kind::kList) {
    if (!option.or_one) fail_value(node, option);
    YamlNode list{.kind = YamlNode::Kind::kList, .place = node.place};
    list.items.push_back(resolve_value(node, option.members.at(0), path));
    return list;
  }
  if (node.items.size() < option.min_items || node.items.size() > option.max_items) {
    const bool few = node.items.size() < option.min_items;
    fail_at(node.place, "expected at " + std::string(few ? "least " : "most ") +
                            std::to_string(few ? option.min_items : option.max_items) +
                            " in the list '" + path + "', got " +
                            std::to_string(node.items.size()));
  }
  YamlNode list{.kind = YamlNode::Kind::kList, .place = node.place};
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    list.items.push_back(
        resolve_value(node.items[i], option.members.at(0), path + "." + std::to_string(i)));
  }
  return list;
}

const OptionCase* find_case(const RecipeOption& table, const std::string& value) {
  for (const OptionCase& c : table.cases->cases) {
    if (c.value == value) return &c;
  }
  return nullptr;
}

std::string child_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// The case that the table's discriminator chooses (its default counts), or null when the table has
// no cases, the key is absent, or its value has no case.
const OptionCase* chosen_case(const YamlNode& node, const RecipeOption& table) {
  if (!table.cases) return nullptr;
  const auto key = std::find_if(table.members.begin(), table.members.end(),
                                [&](const auto& m) { return m.name == table.discriminator; });
  if (key == table.members.end()) throw std::logic_error("[options] no key chooses the case");
  const YamlNode* given = node.find(key->name);
  if (!given) return key->default_yaml ? find_case(table, *key->default_yaml) : nullptr;
  if (key->kind == OptionKind::kString) return find_case(table, given->text);
  RecipeOption choice = *key;
  if (choice.choices.empty()) choice.choices = case_names(table);
  return find_case(table, resolve_choice(*given, choice).text);
}

// Where a key that is not allowed here would be: the other cases that have it.
std::vector<std::string> cases_with(const RecipeOption& table, const std::string& key) {
  std::vector<std::string> names;
  if (!table.cases) return names;
  for (const OptionCase& c : table.cases->cases) {
    for (const RecipeOption& option : c.options) {
      if (option.name == key) names.push_back(c.value);
    }
  }
  return names;
}

void require_known_keys(const YamlNode& node, const RecipeOption& table,
                        const std::vector<const RecipeOption*>& options) {
  std::vector<std::string> known;
  for (const RecipeOption* option : options) known.push_back(option->name);
  for (const YamlEntry& entry : node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::vector<std::string> others = cases_with(table, entry.key);
    if (others.empty()) {
      fail_at(entry.place,
              "unknown key " + quote_for_message(entry.key) + did_you_mean(entry.key, known));
    }
    fail_at(entry.place, "key '" + entry.key + "' applies only to " + table.discriminator + " " +
                             join(others, " or "));
  }
}

YamlNode resolve_table(const YamlNode& node, const RecipeOption& table, const std::string& path) {
  if (node.kind != YamlNode::Kind::kTable) fail_value(node, table);
  std::vector<const RecipeOption*> options;
  for (const RecipeOption& member : table.members) options.push_back(&member);
  if (const OptionCase* chosen = chosen_case(node, table)) {
    for (const RecipeOption& option : chosen->options) options.push_back(&option);
  }
  require_known_keys(node, table, options);

  YamlNode resolved{.kind = YamlNode::Kind::kTable, .place = node.place};
  for (const RecipeOption* option : options) {
    const std::string full_name = child_path(path, option->name);
    YamlNode value;
    if (const YamlNode* given = node.find(option->name)) {
      value = resolve_value(*given, *option, full_name);
    } else if (option->default_yaml) {
      value = resolve_value(parse_yaml_at(*option->default_yaml, node.place), *option, full_name);
      if (value.kind == YamlNode::Kind::kTable && value.entries.empty()) continue;
    } else if (option->required) {
      fail_at(node.place, "missing key '" + full_name + "'");
    } else {
      continue;
    }
    resolved.entries.push_back({option->name, value.place, std::move(value)});
  }
  return resolved;
}

YamlNode resolve_value(const YamlNode& node, const RecipeOption& option, const std::string& path) {
  switch (option.kind) {
    case OptionKind::kString:
      return resolve_string(node, option);
    case OptionKind::kInteger:
      return resolve_integer(node, option);
    case OptionKind::kNumber:
      return resolve_number(node, option);
    case OptionKind::kBoolean:
      return resolve_boolean(node, option);
    case OptionKind::kChoice:
      // A discriminator's choices are its table's cases, checked when the case was chosen.
      return option.choices.empty() ? text_scalar(node) : resolve_choice(node, option);
    case OptionKind::kPair:
      return resolve_pair(node, option);
    case OptionKind::kList:
      return resolve_list(node, option, path);
    case OptionKind::kTable:
      return resolve_table(node, option, path);
    case OptionKind::kChoiceOrTable:
      return node.kind == YamlNode::Kind::kTable ? resolve_table(node, option, path)
                                                 : resolve_choice(node, option);
    case OptionKind::kChoiceOrList:
      return node.kind == YamlNode::Kind::kList ? resolve_list(node, option, path)
                                                : resolve_choice(node, option);
  }
  throw std::logic_error("[options] unknown kind");
}

// Bounds as people write them: 1000000, not 1e+06.
std::string bound_text(double bound) {
  const bool plain = std::abs(bound) < 1e12 && std::trunc(bound) == bound;
  return plain ? std::to_string(static_cast<std::int64_t>(bound)) : format_number(bound);
}

// The words after "a number".
std::string describe_range(const RecipeOption& option) {
  if (!option.min && !option.max) return "";
  if (!option.min) return " of at most " + bound_text(*option.max);
  const std::string min = bound_text(*option.min);
  if (option.above_min) {
    return " above " + min + (option.max ? " and at most " + bound_text(*option.max) : "");
  }
  return option.max ? " from " + min + " to " + bound_text(*option.max) : " of at least " + min;
}

template <typename T>
T converted(std::optional<T> value, const YamlNode& node) {
  if (!value) {
    throw std::logic_error("[options] " + node.place + ": '" + node.text + "' has another type");
  }
  return *value;
}

// Fails at a key that lacks the key of the root that it needs.
void require_needs(const YamlNode& node, const RecipeOption& table, const YamlNode& root,
                   const std::string& path) {
  for (const YamlEntry& entry : node.entries) {
    for (const RecipeOption& option : table.members) {
      if (option.name != entry.key) continue;
      const std::string full_name = child_path(path, entry.key);
      if (!option.needs.empty() && root.find(option.needs) == nullptr) {
        fail_at(entry.place, full_name + " needs '" + option.needs + "'");
      }
      require_needs(entry.value, option, root, full_name);
    }
  }
}

// Without the defaults of keys that lack what they need.
void drop_defaults(RecipeOption& table, const YamlNode& root) {
  for (RecipeOption& option : table.members) {
    if (!option.needs.empty() && root.find(option.needs) == nullptr) option.default_yaml.reset();
    drop_defaults(option, root);
  }
}

void add_paths(const RecipeOption& table, OptionRole role, const std::string& path,
               std::vector<std::string>& paths) {
  for (const RecipeOption& option : table.members) {
    const std::string full_name = child_path(path, option.name);
    if (option.role == role) {
      paths.push_back(full_name);
    } else if (option.kind == OptionKind::kTable) {
      add_paths(option, role, full_name, paths);
    }
  }
}

}  // namespace

YamlNode resolve_options(const YamlNode& node, const RecipeOption& table, const std::string& path) {
  require_needs(node, table, node, path);
  RecipeOption usable = table;
  drop_defaults(usable, node);
  return resolve_table(node, usable, path);
}

std::vector<std::string> paths_of_role(const RecipeOption& table, OptionRole role) {
  std::vector<std::string> paths;
  add_paths(table, role, "", paths);
  return paths;
}

std::string describe_expectation(const RecipeOption& option) {
  switch (option.kind) {
    case OptionKind::kString:
      return option.pattern.empty() ? "a string" : option.pattern_help;
    case OptionKind::kInteger:
      if (option.min && option.min == option.max) return bound_text(*option.min);
      return "a whole number" + describe_range(option);
    case OptionKind::kNumber:
      return "a number" + describe_range(option);
    case OptionKind::kBoolean:
      return "true or false";
    case OptionKind::kChoice:
      return option.choices.size() == 1 ? "'" + option.choices[0] + "'"
                                        : "one of " + join(option.choices);
    case OptionKind::kPair:
      return "a whole number" + describe_range(option) + " or a list of two";
    case OptionKind::kList:
      return option.or_one ? describe_expectation(option.members.at(0)) + " or a list" : "a list";
    case OptionKind::kTable:
      return "a table";
    case OptionKind::kChoiceOrTable: {
      std::vector<std::string> keys;
      for (const RecipeOption& member : option.members) keys.push_back(member.name);
      return join(option.choices, " or ") + ", or a table of " + join(keys, " and ");
    }
    case OptionKind::kChoiceOrList:
      return join(option.choices, " or ") +
             ", or a list of: " + describe_expectation(option.members.at(0));
  }
  return "";
}

void require_other_names(const std::vector<RecipeOption>& members, const OptionCase& of) {
  for (const RecipeOption& option : of.options) {
    const bool taken = std::any_of(members.begin(), members.end(),
                                   [&](const auto& member) { return member.name == option.name; });
    if (!taken) continue;
    throw std::invalid_argument("[recipes] the option '" + option.name + "' of '" + of.value +
                                "' has the name of a key beside it");
  }
}

bool has_other_values(const RecipeOption& discriminator) {
  return discriminator.kind == OptionKind::kString || !discriminator.choices.empty();
}

std::vector<std::string> case_names(const RecipeOption& table) {
  std::vector<std::string> names;
  for (const OptionCase& c : table.cases->cases) names.push_back(c.value);
  return names;
}

const YamlNode& OptionReader::at(std::string_view key) const {
  const YamlNode* value = node_->find(key);
  if (!value) throw std::logic_error("[options] no key '" + std::string(key) + "'");
  return *value;
}

std::int64_t integer_in(const YamlNode& node) { return converted(parse_integer(node.text), node); }

double number_in(const YamlNode& node) { return converted(parse_number(node.text), node); }

bool boolean_in(const YamlNode& node) { return converted(parse_boolean(node.text), node); }

std::vector<std::int64_t> OptionReader::integers(std::string_view key) const {
  std::vector<std::int64_t> values;
  for (const YamlNode& item : at(key).items) values.push_back(integer_in(item));
  return values;
}

std::vector<std::string> OptionReader::texts(std::string_view key) const {
  std::vector<std::string> values;
  for (const YamlNode& item : at(key).items) values.push_back(item.text);
  return values;
}

std::vector<double> OptionReader::numbers(std::string_view key) const {
  std::vector<double> values;
  for (const YamlNode& item : at(key).items) values.push_back(number_in(item));
  return values;
}

}  // namespace steelyard
