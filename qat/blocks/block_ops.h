// Operations on values that are held as the blocks of ggml's types, as llama.cpp computes them.
// Gradients are those of the values that the blocks stand for, passed straight through.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"

namespace steelyard::qat {

// The values that the blocks of x f32 [..., F] stand for. Rows are whole blocks.
Variable block_values(const Variable& x, kernels::BlockType type);

// y[..., out] = x[..., in] weight[out, in]^T + bias[out], all f32: inputs become blocks of Q8_0,
// weights blocks of `type`, sums over blocks are in float32 (kernels/ggml_blocks). `bias` may be
// undefined. Keeps the blocks. Throws std::invalid_argument where rows are not whole blocks or
// there is no product of the type.
Variable block_linear(const Variable& x, const Variable& weight, const Variable& bias,
                      kernels::BlockType type);

// Throws std::invalid_argument that begins with `what` unless rows of `width` are whole blocks.
void require_whole_blocks(const std::string& what, std::int64_t width, kernels::BlockType type);

}  // namespace steelyard::qat
