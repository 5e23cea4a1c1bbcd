#include "steelyard/recipes/language/overrides.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> keys(1);
  for (char c : path) {
    if (c == '.') {
      keys.emplace_back();
    } else {
      keys.back() += c;
    }
  }
  return keys;
}

YamlNode& list_item(YamlNode& list, const std::string& key, const std::string& place) {
  const std::optional<std::int64_t> index = parse_integer(key);
  if (!index || *index < 0 || static_cast<std::size_t>(*index) >= list.items.size()) {
    fail_at(place, "expected an index below " + std::to_string(list.items.size()) + ", got " +
                       quote_for_message(key));
  }
  return list.items[static_cast<std::size_t>(*index)];
}

// The value of `key`, made when it is not there.
YamlNode& child(YamlNode& node, const std::string& key, const std::string& place) {
  if (node.kind == YamlNode::Kind::kList) return list_item(node, key, place);
  if (node.kind == YamlNode::Kind::kScalar) {
    fail_at(place, "expected a table above " + quote_for_message(key) + ", got " +
                       describe_value(node) + " at " + node.place);
  }
  node.kind = YamlNode::Kind::kTable;
  if (YamlNode* value = node.find(key)) return *value;
  node.entries.push_back({key, place, {.place = place}});
  return node.entries.back().value;
}

void erase(YamlNode& parent, const std::string& key, const std::string& place) {
  if (parent.kind == YamlNode::Kind::kList) fail_at(place, "a list's item cannot be removed");
  const auto at = std::find_if(parent.entries.begin(), parent.entries.end(),
                               [&](const YamlEntry& entry) { return entry.key == key; });
  if (at == parent.entries.end()) fail_at(place, "there is no such key to remove");
  parent.entries.erase(at);
}

// The value of an option such as --device is a text or a number: `cuda:` is not a table.
YamlNode option_value(const std::string& text, const std::string& place) {
  if (text.empty() || text == "null") return {.place = place};
  return {.kind = YamlNode::Kind::kScalar, .text = text, .place = place};
}

}  // namespace

void apply_override(YamlNode& document, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  const bool is_option = assignment.starts_with("--");
  const std::string path = assignment.substr(0, equals).substr(is_option ? 2 : 0);
  const std::vector<std::string> keys = split_path(path);
  const bool empty_key = std::find(keys.begin(), keys.end(), "") != keys.end();
  if (equals == std::string::npos || empty_key || keys.size() > kMaxYamlDepth) {
    fail_at("--set", "expected KEY.PATH=VALUE, got " + quote_for_message(assignment));
  }
  const std::string quoted = quote_for_message(path);  // on one line and of bounded length
  const std::string place = (is_option ? "--" : "--set ") + quoted.substr(1, quoted.size() - 2);
  const std::string text = assignment.substr(equals + 1);
  YamlNode value = is_option ? option_value(text, place) : parse_yaml_at(text, place);
  YamlNode* parent = &document;
  for (std::size_t i = 0; i + 1 < keys.size(); ++i) parent = &child(*parent, keys[i], place);
  if (text == "null" && !is_option) {
    erase(*parent, keys.back(), place);
  } else {
    child(*parent, keys.back(), place) = std::move(value);
  }
}

}  // namespace steelyard
