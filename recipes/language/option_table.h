// Options as plain data: one table yields the strict parser, the resolved text with every default,
// the JSON schema and the documentation (option_docs.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/recipes/language/yaml_document.h"

namespace steelyard {

enum class OptionKind {
  kString,
  kInteger,
  kNumber,         // finite
  kBoolean,        // true or false
  kChoice,         // one of `choices`
  kPair,           // one whole number for both, or a list of two: kernel sizes, strides
  kList,           // of members[0]
  kTable,          // of members, and the options of the case chosen
  kChoiceOrTable,  // one of `choices`, or a table of members
  kChoiceOrList,   // one of `choices`, or a list of members[0]
};

// The effect of a value on a run.
enum class OptionRole {
  kEssential,     // the results of a run
  kNotEssential,  // where they come from or what they are called: equal runs may differ in it
  kFree           // nothing of them: it may change when a run is resumed
};

struct OptionCase;

// Further options of a table that depend on the value of one of its keys ("type").
struct OptionCases {
  std::vector<OptionCase> cases;
};

struct RecipeOption {
  std::string name = {};
  OptionKind kind = OptionKind::kString;
  std::string help = {};
  bool required = false;
  std::optional<std::string> default_yaml = {};  // neither required nor default: may be absent
  std::optional<double> min = {};                // kInteger, kNumber, each number of kPair
  std::optional<double> max = {};
  bool above_min = false;  // min itself is excluded
  std::size_t min_items = 0;
  std::size_t max_items = 1024;
  bool or_one = false;  // kList: an item alone stands for a list of it
  std::vector<std::string> choices = {};
  std::string pattern = {};       // kString: a regular expression (POSIX extended) for all of it
  std::string pattern_help = {};  // what the pattern means, for messages
  bool may_be_empty = false;      // kString
  std::vector<RecipeOption> members = {};
  std::string discriminator = {};  // kTable: the key that chooses the case; it may be absent
  std::shared_ptr<const OptionCases> cases = {};  // tables may contain themselves through it
  std::string definition = {};  // kTable: its name in the schema, where it is written once
  // A key of the root without which this one is an error, and has no default.
  std::string needs = {};
  OptionRole role = OptionRole::kEssential;
};

struct OptionCase {
  std::string value;
  std::string help = {};
  std::vector<RecipeOption> options = {};
};

// Checks `node` against a table and returns it with canonical scalars, every default filled in and
// the keys in the table's order; a table that is absent and would hold nothing stays absent. Throws
// InputError for the first unknown or missing key, wrong type or value out of range. `path` names
// the table in messages about missing keys ("" for the root).
YamlNode resolve_options(const YamlNode& node, const RecipeOption& table, const std::string& path);

// The description of valid values: "a whole number from 2 to 8".
std::string describe_expectation(const RecipeOption& option);

// Throws std::invalid_argument where an option of the case has the name of a member.
void require_other_names(const std::vector<RecipeOption>& members, const OptionCase& of);

// Whether a key that chooses among cases may have values without one: it has choices of its own, or
// takes any text.
bool has_other_values(const RecipeOption& discriminator);

// Names of a table's cases.
std::vector<std::string> case_names(const RecipeOption& table);

// The paths of a table's keys that have a role, as "table.key"; what lists and cases hold left out.
std::vector<std::string> paths_of_role(const RecipeOption& table, OptionRole role);

// The value of a resolved scalar. Another type is a mistake of the caller: std::logic_error.
std::int64_t integer_in(const YamlNode& node);
double number_in(const YamlNode& node);
bool boolean_in(const YamlNode& node);

// Typed access to a resolved table. Asking for a key that the table cannot have, or for another
// type, is a mistake of the caller: std::logic_error.
class OptionReader {
 public:
  explicit OptionReader(const YamlNode& resolved) : node_(&resolved) {}

  const std::string& place() const { return node_->place; }
  const YamlNode& node() const { return *node_; }

  bool has(std::string_view key) const { return node_->find(key) != nullptr; }
  const YamlNode& at(std::string_view key) const;
  OptionReader table(std::string_view key) const { return OptionReader(at(key)); }

  const std::string& text(std::string_view key) const { return at(key).text; }
  std::int64_t integer(std::string_view key) const { return integer_in(at(key)); }
  double number(std::string_view key) const { return number_in(at(key)); }
  bool boolean(std::string_view key) const { return boolean_in(at(key)); }
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

 private:
  const YamlNode* node_;
};

}  // namespace steelyard
