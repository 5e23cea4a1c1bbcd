// Layers whose weights are blocks as a file has them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"

namespace steelyard::qat {

// The rows of a weight as blocks u8 [out, bytes of a row].
struct StoredBlocks {
  Tensor blocks;
  kernels::BlockType type;
};

// Replaces the linear layers below a module, and heads that share an embedding's table, for whose
// parameter there are blocks: their products are those of these blocks (stored_block_linear()).
// For evaluation: they have no parameters.
void use_stored_blocks(
    Module& model,
    const std::function<std::optional<StoredBlocks>(const std::string& parameter)>& blocks_of);

// Encodes the weights of block layers (block_layers.h) below a module, but for embeddings, whose
// passes encode single rows: once instead of in every pass. For evaluation, as above.
void store_blocks(Module& model);

}  // namespace steelyard::qat
