// Values as the blocks of ggml's types, and products of such blocks, as llama.cpp computes them.
//
// The arithmetic is kernels/ggml_blocks/*_formats.h.
#pragma once

#include "steelyard/kernels/ggml_blocks/block_formats.h"
#include "steelyard/kernels/ggml_blocks/searched_formats.h"
#include "steelyard/kernels/ggml_blocks/stored_formats.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// blocks [n * kBytes] = x [n * kElements]; scales f32 [n] may be null: then each block's own.
template <class Format>
struct EncodeBlocks {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n;
  const float *x, *scales;
  std::uint8_t* blocks;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const float* from = x + i * Format::kElements;
    std::uint8_t* to = blocks + i * Format::kBytes;
    if constexpr (requires { Format::encode_with(from, 0.0F, to); }) {
      if (scales != nullptr) return Format::encode_with(from, scales[i], to);
    }
    Format::encode(from, to);
  }
};

// x [n * kElements] = the values of blocks [n * kBytes].
template <class Format>
struct DecodeBlocks {
  static constexpr std::int64_t kGrain = 512;
  std::int64_t n;
  const std::uint8_t* blocks;
  float* x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    decode_block<Format>(blocks + i * Format::kBytes, x + i * Format::kElements);
  }
};

// y [rows, columns] = inputs [rows, terms], blocks of InputBlocks, times the transpose of weights
// [columns, terms], blocks of Format: the sum, in float32 and in the order of blocks, of
// (d_input * d_weight) * float(the exact sum of 32 products of codes). `terms` is a multiple of
// both formats' elements.
template <class Format>
struct BlockProduct {
  std::int64_t rows, columns, terms;
  const std::uint8_t *inputs, *weights;
  float* y;

  std::int64_t input_bytes() const { return terms / InputBlocks::kElements * InputBlocks::kBytes; }
  std::int64_t weight_bytes() const { return terms / Format::kElements * Format::kBytes; }
};

using GgmlBlocksKernels = JoinedKernels<
    ForTypes<EncodeBlocks, F32Blocks, F16Blocks, BF16Blocks, Q4_0Blocks, Q4_1Blocks, Q8_0Blocks,
             InputBlocks, Iq4NlBlocks, Mxfp4Blocks, Q2_0Blocks, SearchedQ4_0Blocks,
             SearchedIq4NlBlocks, SearchedMxfp4Blocks>,
    ForTypes<DecodeBlocks, F32Blocks, F16Blocks, BF16Blocks, Q4_0Blocks, Q4_1Blocks, Q8_0Blocks,
             Iq4NlBlocks, Mxfp4Blocks, Q2_0Blocks, Q5_0Blocks, Q5_1Blocks, Q2_KBlocks, Q3_KBlocks,
             Q4_KBlocks, Q5_KBlocks, Q6_KBlocks>,
    ForTypes<BlockProduct, Q4_0Blocks, Q8_0Blocks, Iq4NlBlocks, Mxfp4Blocks, Q2_0Blocks>>;

}  // namespace steelyard::kernels
