// From a type of ggml's blocks, as data, to its format, as a C++ type.
#pragma once

#include <stdexcept>
#include <string>

#include "steelyard/kernels/ggml_blocks/searched_formats.h"
#include "steelyard/kernels/ggml_blocks/stored_formats.h"

namespace steelyard {

// f(Format()) for the format of that type (kernels/ggml_blocks/block_formats.h). Throws
// std::invalid_argument for a type that is decoded alone.
template <typename F>
decltype(auto) visit_blocks(kernels::BlockType type, F&& f) {
  using kernels::BlockType;
  switch (type) {
    case BlockType::kF32:
      return f(kernels::F32Blocks());
    case BlockType::kF16:
      return f(kernels::F16Blocks());
    case BlockType::kQ4_0:
      return f(kernels::Q4_0Blocks());
    case BlockType::kQ4_1:
      return f(kernels::Q4_1Blocks());
    case BlockType::kQ8_0:
      return f(kernels::Q8_0Blocks());
    case BlockType::kIq4Nl:
      return f(kernels::Iq4NlBlocks());
    case BlockType::kBF16:
      return f(kernels::BF16Blocks());
    case BlockType::kMxfp4:
      return f(kernels::Mxfp4Blocks());
    case BlockType::kQ2_0:
      return f(kernels::Q2_0Blocks());
    default:
      throw std::invalid_argument("[blocks] none are made of the type " +
                                  std::string(kernels::ggml_type(type).name));
  }
}

// f(Format()) for what decodes the blocks of that type.
template <typename F>
decltype(auto) visit_stored_blocks(kernels::BlockType type, F&& f) {
  using kernels::BlockType;
  switch (type) {
    case BlockType::kQ5_0:
      return f(kernels::Q5_0Blocks());
    case BlockType::kQ5_1:
      return f(kernels::Q5_1Blocks());
    case BlockType::kQ2_K:
      return f(kernels::Q2_KBlocks());
    case BlockType::kQ3_K:
      return f(kernels::Q3_KBlocks());
    case BlockType::kQ4_K:
      return f(kernels::Q4_KBlocks());
    case BlockType::kQ5_K:
      return f(kernels::Q5_KBlocks());
    case BlockType::kQ6_K:
      return f(kernels::Q6_KBlocks());
    default:
      return visit_blocks(type, f);
  }
}

// Whether searched scales make blocks of a type.
constexpr bool has_searched_scales(kernels::BlockType type) {
  using kernels::BlockType;
  return type == BlockType::kQ4_0 || type == BlockType::kIq4Nl || type == BlockType::kMxfp4;
}

// f(Format()) for what makes the blocks of that type, with searched scales
// (kernels/ggml_blocks/searched_formats.h) or the reference's. Throws std::invalid_argument where
// there are none.
template <typename F>
decltype(auto) visit_block_makers(kernels::BlockType type, bool searched, F&& f) {
  using kernels::BlockType;
  if (!searched) return visit_blocks(type, f);
  switch (type) {
    case BlockType::kQ4_0:
      return f(kernels::SearchedQ4_0Blocks());
    case BlockType::kIq4Nl:
      return f(kernels::SearchedIq4NlBlocks());
    case BlockType::kMxfp4:
      return f(kernels::SearchedMxfp4Blocks());
    default:
      throw std::invalid_argument("[blocks] no scales are searched for the type " +
                                  std::string(kernels::ggml_type(type).name));
  }
}

}  // namespace steelyard
