// Operations on values that are held as the blocks of ggml's types, as llama.cpp computes them.
// Gradients are those of the values that the blocks stand for, passed straight through.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/qat/blocks/block_config.h"

namespace steelyard::qat {

// The values that the blocks of x f32 [..., F] stand for. Rows are whole blocks.
Variable block_values(const Variable& x, const BlockScheme& scheme);

// y[..., out] = x[..., in] weight[out, in]^T + bias[out], all f32: inputs become blocks of Q8_0,
// weights blocks of the scheme, sums over blocks are in float32 (kernels/ggml_blocks). `bias` may
// be undefined. Keeps the blocks. Throws std::invalid_argument where rows are not whole blocks or
// there is no product of the type.
Variable block_linear(const Variable& x, const Variable& weight, const Variable& bias,
                      const BlockScheme& scheme);

// block_linear() with weights that are blocks u8 [out, bytes of a row] already; nothing is
// recorded.
Variable stored_block_linear(const Variable& x, const Tensor& weight, const Variable& bias,
                             kernels::BlockType type);

// The blocks u8 [rows, bytes of a row] that x f32 [..., F] becomes; rows are whole blocks.
Tensor encoded_blocks(const Tensor& x, const BlockScheme& scheme);

// Whether block_linear() has a product of the type.
bool has_block_product(kernels::BlockType type);

// Throws std::invalid_argument that begins with `what` unless rows of `width` are whole blocks.
void require_whole_blocks(const std::string& what, std::int64_t width, kernels::BlockType type);

}  // namespace steelyard::qat
