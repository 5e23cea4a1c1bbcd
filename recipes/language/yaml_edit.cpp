#include "steelyard/recipes/language/yaml_edit.h"

namespace steelyard {

YamlNode yaml_scalar(std::string text) {
  return {.kind = YamlNode::Kind::kScalar, .text = std::move(text)};
}

YamlNode yaml_table(std::vector<std::pair<std::string, YamlNode>> entries) {
  YamlNode table{.kind = YamlNode::Kind::kTable};
  for (auto& [key, value] : entries) set_entry(table, key, std::move(value));
  return table;
}

YamlNode yaml_list(const std::vector<std::string>& texts) {
  YamlNode list{.kind = YamlNode::Kind::kList};
  for (const std::string& text : texts) {
    YamlNode item = yaml_scalar(text);
    item.quoted = true;
    list.items.push_back(std::move(item));
  }
  return list;
}

void set_entry(YamlNode& table, const std::string& key, YamlNode value) {
  if (YamlNode* found = table.find(key)) {
    *found = std::move(value);
  } else {
    table.entries.push_back({key, "", std::move(value)});
  }
}

void remove_entry(YamlNode& table, std::string_view key) {
  std::erase_if(table.entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

void copy_entry(YamlNode& to, const YamlNode& from, const std::string& key) {
  if (const YamlNode* value = from.find(key)) set_entry(to, key, *value);
}

YamlNode placed_at(YamlNode node, const std::string& place) {
  node.place = place;
  for (YamlNode& item : node.items) item = placed_at(std::move(item), place);
  for (YamlEntry& entry : node.entries) {
    entry.place = place;
    entry.value = placed_at(std::move(entry.value), place);
  }
  return node;
}

}  // namespace steelyard
