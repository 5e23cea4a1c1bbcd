#include "steelyard/recipes/language/option_docs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "steelyard/recipes/schema/recipe_options.h"
#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using Json = nlohmann::json;

void collect_names(const std::vector<RecipeOption>& options, std::set<std::string>& names,
                   std::set<const OptionCases*>& seen) {
  for (const RecipeOption& option : options) {
    if (!option.name.empty()) names.insert(option.name);
    collect_names(option.members, names, seen);
    if (!option.cases || !seen.insert(option.cases.get()).second) continue;
    for (const OptionCase& c : option.cases->cases) collect_names(c.options, names, seen);
  }
}

std::set<std::string> all_keys(const Registries& registries) {
  std::set<std::string> names;
  std::set<const OptionCases*> seen;
  collect_names(recipe_options(registries).members, names, seen);
  return names;
}

TEST(RecipeSchema, IsJsonAndHoldsEveryKey) {
  const Registries& registries = builtin_registries();
  const std::string text = recipe_schema(registries);
  const Json schema = Json::parse(text);
  EXPECT_EQ(schema["type"], "object");
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["properties"]["train"]["properties"]["epochs"]["minimum"], 1);
  EXPECT_EQ(schema["properties"]["data"]["properties"]["batch_size"]["default"], 128);
  EXPECT_TRUE(schema["$defs"].contains("layer"));
  for (const std::string& key : all_keys(registries)) {
    EXPECT_NE(text.find("\"" + key + "\": {"), std::string::npos) << key;
  }
}

// The references of a schema point at definitions that exist.
TEST(RecipeSchema, ReferencesResolve) {
  const std::string text = recipe_schema(builtin_registries());
  const Json schema = Json::parse(text);
  std::size_t references = 0;
  const std::function<void(const Json&)> visit = [&](const Json& node) {
    if (node.is_object() && node.contains("$ref")) {
      ++references;
      const std::string target = node["$ref"];
      EXPECT_TRUE(schema.contains(Json::json_pointer(target.substr(1)))) << target;
    }
    if (node.is_structured()) {
      for (const Json& child : node) visit(child);
    }
  };
  visit(schema);
  EXPECT_GE(references, 4u);  // model.layers, Residual's two, Sequential's
}

TEST(RecipePage, IsWhatTheOptionTableGenerates) {
  const std::string page = recipe_markdown(builtin_registries());
  if (std::getenv("STEELYARD_UPDATE_DOCS")) std::ofstream(STEELYARD_RECIPES_PAGE) << page;
  std::ifstream file(STEELYARD_RECIPES_PAGE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), page) << "run this test with STEELYARD_UPDATE_DOCS=1 to write it";
}

TEST(RecipePage, HoldsEveryKey) {
  const Registries& registries = builtin_registries();
  const std::string page = recipe_markdown(registries);
  for (const std::string& key : all_keys(registries)) {
    EXPECT_NE(page.find("| `" + key + "` |"), std::string::npos) << key;
  }
}

// A default that its own option refuses would make the shortest recipe invalid.
TEST(OptionTable, EveryDefaultPassesItsOwnCheck) {
  const std::function<void(const std::vector<RecipeOption>&)> check =
      [&](const std::vector<RecipeOption>& options) {
        for (const RecipeOption& option : options) {
          if (option.cases && option.definition.empty()) {
            for (const OptionCase& c : option.cases->cases) check(c.options);
          }
          check(option.members);
          if (!option.default_yaml || option.name.empty()) continue;
          const RecipeOption table{.name = "t", .kind = OptionKind::kTable, .members = {option}};
          EXPECT_NO_THROW(resolve_options(parse_yaml("{}", "t"), table, "")) << option.name;
        }
      };
  const Registries& registries = builtin_registries();
  check(recipe_options(registries).members);
}

}  // namespace
}  // namespace steelyard
