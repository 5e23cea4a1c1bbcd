// The keys in which two recipes differ, for messages.
#pragma once

#include <string>
#include <vector>

#include "steelyard/recipes/language/yaml_document.h"

namespace steelyard {

struct RecipeDifference {
  std::string key;  // "train.optimizer.lr", "quantize.groups.0.targets"
  std::string first;
  std::string second;  // values as text; "nothing" where one recipe lacks the key
};

// Every key with another value, in the order of the first recipe; of a table or a list of tables
// that both have only what differs inside it.
std::vector<RecipeDifference> recipe_differences(const YamlNode& first, const YamlNode& second);

// "seed (3, given 9), train.epochs (6, given 5)": `second_is` is "given". At most five are shown.
std::string to_string(const std::vector<RecipeDifference>& differences,
                      const std::string& second_is);

}  // namespace steelyard
