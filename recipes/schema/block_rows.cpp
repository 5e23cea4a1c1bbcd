// The section `quantize` beside an `export.target`, whose layers have blocks of ggml's types.
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

using kernels::BlockType;
using qat::BlockConfig;
using qat::BlockGroup;
using qat::BlockScales;

std::vector<Row<BlockGroup>> block_weight_rows() {
  std::vector<std::pair<std::string, std::optional<BlockType>>> types;
  for (const Word<GgufTarget>& word : words_of(GgufTarget{})) {
    const BlockType type = block_type_of(word.value);
    types.emplace_back(kernels::ggml_type(type).name, type);
  }
  return {words_key<BlockGroup>(
              "type",
              "with `export.target`: ggml's type of the blocks that the weights become in every "
              "pass and in the file; absent: the target's",
              types, &BlockGroup::type),
          key("scale",
              "with `export.target`: how a block's scale follows from its values: as ggml's "
              "reference has it, or by a `search` for one with a smaller error, not for q8_0 "
              "(docs/language_models.md); absent: reference",
              &BlockGroup::scales)};
}

Table<BlockGroup> block_group_table() {
  return {"Layers whose weights are blocks.",
          {key("targets", "layers, as in recipes without `export.target`", &BlockGroup::targets)
               .required()
               .items(1)
               .places(&BlockGroup::target_places),
           nested<BlockGroup>("weights", Table<BlockGroup>("The blocks.", block_weight_rows()))}};
}

}  // namespace

BlockType block_type_of(GgufTarget target) {
  switch (target) {
    case GgufTarget::kQ4_0:
      return BlockType::kQ4_0;
    case GgufTarget::kQ8_0:
      return BlockType::kQ8_0;
    case GgufTarget::kIq4Nl:
      return BlockType::kIq4Nl;
    case GgufTarget::kMxfp4:
      break;
  }
  return BlockType::kMxfp4;
}

std::vector<RecipeOption> block_weight_options() {
  std::vector<RecipeOption> options;
  for (const Row<BlockGroup>& row : block_weight_rows()) options.push_back(row.option);
  return options;
}

Table<BlockConfig> block_table() {
  return {"Which layers have which blocks; absent: all linear and embedding layers the target's.",
          {list_of<BlockGroup, BlockConfig>(
               "groups", "layers and their blocks; the first match wins; absent: all layers",
               block_group_table(), &BlockConfig::groups)
               .items(1),
           key("ignore", "layers left in float", &BlockConfig::ignore)
               .by_default()
               .places(&BlockConfig::ignore_places)}};
}

void check_blocks(const OptionReader& from, Recipe& recipe) {
  BlockConfig& blocks = recipe.exports.blocks;
  blocks.type = block_type_of(recipe.exports.target.value());
  for (std::size_t i = 0; i < blocks.groups.size(); ++i) {
    const BlockType type = blocks.groups[i].type.value_or(blocks.type);
    if (blocks.groups[i].scales != BlockScales::kSearch || has_searched_scales(type)) continue;
    const OptionReader group(from.table("quantize").at("groups").items[i]);
    fail_at(group.table("weights").at("scale").place,
            "scale: search: expected weights of q4_0, iq4_nl or mxfp4, got " +
                std::string(kernels::ggml_type(type).name));
  }
}

}  // namespace steelyard
