// Documentation generated from option tables.
#pragma once

#include <string>

#include "steelyard/recipes/language/option_table.h"

namespace steelyard {

// JSON Schema (draft 2020-12) of a table, indented by two.
std::string json_schema(const RecipeOption& table, const std::string& title);

// Markdown: one table of keys, types, defaults and meanings for each nested table.
std::string markdown(const RecipeOption& table);

}  // namespace steelyard
