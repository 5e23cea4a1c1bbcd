// YAML text as a tree, as text again, and as a tree again.
#include "steelyard/recipes/language/yaml_document.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  YamlNode tree;
  if (!fuzz::accepted([&] { tree = parse_yaml(fuzz::view(data, size), "recipe.yaml"); })) return 0;
  const std::string text = to_yaml(tree);
  const YamlNode again = parse_yaml(text, "written");
  const std::string text_again = to_yaml(again);
  fuzz::require(text == text_again, "written twice:\n" + text + "and\n" + text_again);
  return 0;
}
