// A recipe's text; what is accepted is written with every default and gives the same recipe.
#include <algorithm>

#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  Recipe recipe;
  if (!fuzz::accepted([&] {
        recipe = parse_recipe(fuzz::view(data, size), "recipe.yaml", {}, builtin_registries());
      })) {
    return 0;
  }
  const bool is_file_name = std::all_of(recipe.name.begin(), recipe.name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
  });
  fuzz::require(is_file_name, "the name '" + recipe.name + "'");
  const std::string resolved = resolved_yaml(recipe);
  fuzz::require(
      resolved_yaml(parse_recipe(resolved, "resolved", {}, builtin_registries())) == resolved,
      "a resolved recipe resolves otherwise:\n" + resolved);
  return 0;
}
