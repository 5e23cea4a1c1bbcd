// From a type of ggml's blocks, as data, to its format, as a C++ type.
#pragma once

#include <stdexcept>

#include "steelyard/kernels/ggml_blocks/block_formats.h"

namespace steelyard {

// f(Format()) for the format of that type (kernels/ggml_blocks/block_formats.h).
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
  }
  throw std::invalid_argument("[blocks] unknown type");
}

}  // namespace steelyard
