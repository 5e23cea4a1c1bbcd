// Values given in addition to the recipe: --set train.epochs=3.
#pragma once

#include <string>

#include "steelyard/recipes/language/yaml_document.h"

namespace steelyard {

// Applies "key.path=value" to a document before it is checked. The value is YAML ("3", "[flip]"); a
// number in the path is an index into a list ("quantize.groups.0.targets"); tables that are not
// there yet are made; the value `null` removes the key. Messages about the value start with
// "--set key.path". "--key=value" is an option of the command line: its messages start with
// "--key", and it cannot remove the key. Throws InputError when the text or the path is wrong.
void apply_override(YamlNode& document, const std::string& assignment);

}  // namespace steelyard
