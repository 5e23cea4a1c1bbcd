// A recipe's text; what is accepted is written with every default and gives the same recipe.
#include "recipes/models.h"
#include "recipes/recipe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static const ModelRegistry kModels = builtin_models();
  std::string resolved;
  if (!fuzz::accepted([&] {
        resolved = resolved_yaml(parse_recipe(fuzz::view(data, size), "recipe.yaml", {}, kModels));
      })) {
    return 0;
  }
  fuzz::require(resolved_yaml(parse_recipe(resolved, "resolved", {}, kModels)) == resolved,
                "a resolved recipe resolves otherwise:\n" + resolved);
  return 0;
}
