// Which layers of a language model have which blocks: plain data, one-to-one with a recipe's
// `quantize` section beside an `export.target`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"

namespace steelyard::qat {

// How a block's scale follows from its values.
enum class BlockScales { kReference, kSearch };

inline constexpr Word<BlockScales> kBlockScalesWords[] = {
    {BlockScales::kReference, "reference"},
    {BlockScales::kSearch, "search"},
};
static_assert(is_complete<BlockScales>(kBlockScalesWords, BlockScales::kSearch));
constexpr std::span<const Word<BlockScales>> words_of(BlockScales) { return kBlockScalesWords; }

// What weights become in every pass.
struct BlockScheme {
  BlockScheme(kernels::BlockType of_type,  // NOLINT: a type is one
              BlockScales with = BlockScales::kReference)
      : type(of_type), scales(with) {}

  kernels::BlockType type;
  BlockScales scales;
  bool operator==(const BlockScheme&) const = default;
};

// "q4_0", "q4_0, searched scales".
std::string to_string(const BlockScheme& scheme);

// Layers chosen as those of a QuantizeGroup are.
struct BlockGroup {
  std::vector<std::string> targets{};
  std::optional<kernels::BlockType> type{};  // absent: the config's
  BlockScales scales = BlockScales::kReference;
  std::vector<std::string> target_places{};
};

struct BlockConfig {
  kernels::BlockType type = kernels::BlockType::kQ4_0;
  std::vector<BlockGroup> groups{};  // the first that matches a layer decides; none: all layers
  std::vector<std::string> ignore{};
  std::vector<std::string> ignore_places{};
};

}  // namespace steelyard::qat
