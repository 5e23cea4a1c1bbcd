// Making and changing trees of YAML.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/recipes/language/yaml_document.h"

namespace steelyard {

YamlNode yaml_scalar(std::string text);
YamlNode yaml_table(std::vector<std::pair<std::string, YamlNode>> entries);
// A list of strings, whatever they look like.
YamlNode yaml_list(const std::vector<std::string>& texts);

// Sets or appends a table's entry.
void set_entry(YamlNode& table, const std::string& key, YamlNode value);
void remove_entry(YamlNode& table, std::string_view key);
// The entry as `from` has it, where it does.
void copy_entry(YamlNode& to, const YamlNode& from, const std::string& key);
// The tree with that place in messages: of what no user has written, and has no line.
YamlNode placed_at(YamlNode node, const std::string& place);

}  // namespace steelyard
