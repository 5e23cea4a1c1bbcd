#include "steelyard/recipes/language/recipe_differences.h"

#include <algorithm>

#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

constexpr std::size_t kMostShown = 5;

using Differences = std::vector<RecipeDifference>;

bool holds_tables(const YamlNode& list) {
  return std::any_of(list.items.begin(), list.items.end(),
                     [](const YamlNode& item) { return item.kind != YamlNode::Kind::kScalar; });
}

std::string value_text(const YamlNode* node) {
  if (node == nullptr) return "nothing";
  if (node->kind == YamlNode::Kind::kScalar) return quote_for_message(node->text);
  if (node->kind != YamlNode::Kind::kList || holds_tables(*node)) return describe_value(*node);
  std::vector<std::string> items;
  for (const YamlNode& item : node->items) items.push_back(item.text);
  std::string text = "[";
  text += join(items);
  return quote_for_message(text += "]");
}

std::string child(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

void compare(const std::string& path, const YamlNode* first, const YamlNode* second,
             Differences& found) {
  if (first != nullptr && second != nullptr && *first == *second) return;
  const bool both = first != nullptr && second != nullptr && first->kind == second->kind;
  if (both && first->kind == YamlNode::Kind::kTable) {
    for (const YamlEntry& entry : first->entries) {
      compare(child(path, entry.key), &entry.value, second->find(entry.key), found);
    }
    for (const YamlEntry& entry : second->entries) {
      if (first->find(entry.key) != nullptr) continue;
      compare(child(path, entry.key), nullptr, &entry.value, found);
    }
    return;
  }
  const bool lists = both && first->kind == YamlNode::Kind::kList;
  if (lists && first->items.size() == second->items.size() && holds_tables(*first)) {
    for (std::size_t i = 0; i < first->items.size(); ++i) {
      compare(child(path, std::to_string(i)), &first->items[i], &second->items[i], found);
    }
    return;
  }
  found.push_back({path, value_text(first), value_text(second)});
}

}  // namespace

Differences recipe_differences(const YamlNode& first, const YamlNode& second) {
  Differences found;
  compare("", &first, &second, found);
  return found;
}

std::string to_string(const Differences& differences, const std::string& second_is) {
  std::vector<std::string> shown;
  for (const RecipeDifference& d : differences) {
    if (shown.size() == kMostShown) break;
    shown.push_back(d.key + " (" + d.first + ", " + second_is + " " + d.second + ")");
  }
  std::string text = join(shown);
  if (differences.size() > kMostShown) {
    text += " and " + std::to_string(differences.size() - kMostShown) + " more";
  }
  return text;
}

}  // namespace steelyard
