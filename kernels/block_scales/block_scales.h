// Values with a scale and zero point for each block of rows and columns.
//
// All arithmetic is kernels/affine.h. Code is int8_t or uint8_t.
#pragma once

#include "steelyard/kernels/block_scales/blocks.h"
#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/mask_byte.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y [blocks, block_rows * block_columns] = x block by block, 0 where a block has no row. n =
// elements of y.
struct ToBlocks {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  Blocks blocks;
  const float* x;
  float* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t size = blocks.block_rows * blocks.block_columns;
    const std::int64_t block = divide(i, size), place = i - block * size;
    const std::int64_t in_rows = divide(place, blocks.block_columns);
    const std::int64_t band = divide(block, blocks.blocks_of_row);
    const std::int64_t row = band * blocks.block_rows + in_rows;
    const std::int64_t column = (block - band * blocks.blocks_of_row) * blocks.block_columns +
                                (place - in_rows * blocks.block_columns);
    y[i] = row < blocks.rows ? x[row * blocks.columns + column] : 0.0F;
  }
};

// codes = quantize(x) of `size` values; mask bit (may be null) = inside, tail bits 0. n =
// mask_bytes(size): eight values each.
template <typename Code>
struct QuantizeBlocks {
  static constexpr std::int64_t kGrain = 512;
  std::int64_t n, size;
  Blocks blocks;
  CodeRange range;
  const float *x, *scale;
  const std::int32_t* zero_point;
  Code* codes;
  std::uint8_t* mask;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t byte) const {
    write_mask_byte(byte, size, mask, [&](std::int64_t i) {
      const std::int64_t block = blocks.of(i);
      const auto grid = make_affine(range, scale[block], zero_point[block]);
      const float code = unclamped_code(x[i], grid);
      codes[i] = static_cast<Code>(to_integer_code(code, grid));
      return code_is_inside(code, grid);
    });
  }
};

// y = (code - z) * s.
template <typename Code>
struct DequantizeBlocks {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  Blocks blocks;
  const Code* codes;
  const float* scale;
  const std::int32_t* zero_point;
  float* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t block = blocks.of(i);
    y[i] = dequantize_code(static_cast<float>(codes[i]), static_cast<float>(zero_point[block]),
                           scale[block]);
  }
};

using BlockScalesKernels =
    JoinedKernels<KernelList<ToBlocks>, ForTypes<QuantizeBlocks, std::int8_t, std::uint8_t>,
                  ForTypes<DequantizeBlocks, std::int8_t, std::uint8_t>>;

}  // namespace steelyard::kernels
