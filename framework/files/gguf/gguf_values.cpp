#include "steelyard/framework/files/gguf/gguf_values.h"

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard {
namespace {

using kernels::BlockType;

constexpr std::array kReadTypes = {
    BlockType::kF32,  BlockType::kF16,  BlockType::kBF16,  BlockType::kQ8_0,
    BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,  BlockType::kQ5_1,
    BlockType::kQ2_0, BlockType::kQ2_K, BlockType::kQ3_K,  BlockType::kQ4_K,
    BlockType::kQ5_K, BlockType::kQ6_K, BlockType::kIq4Nl, BlockType::kMxfp4};

std::string read_types() {
  std::string text;
  for (const BlockType type : kReadTypes) {
    text += (text.empty() ? "" : ", ") + std::string(kernels::ggml_type(type).name);
  }
  return text;
}

}  // namespace

std::optional<BlockType> block_type_of(const GgufTensor& tensor) {
  for (const BlockType type : kReadTypes) {
    if (tensor.type->id == static_cast<std::uint32_t>(type)) return type;
  }
  return std::nullopt;
}

Shape shape_of(const GgufTensor& tensor) { return {tensor.sizes.rbegin(), tensor.sizes.rend()}; }

Tensor read_blocks(const GgufReader& file, const GgufTensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.bytes());
  const std::int64_t rows = tensor.elements() / tensor.sizes[0];
  Tensor blocks = Tensor::empty({rows, bytes / rows}, DType::kU8);
  file.bytes_of(tensor)->read(0, blocks.raw(), tensor.bytes());
  return blocks;
}

Tensor read_values(const GgufReader& file, const GgufTensor& tensor) {
  const auto type = block_type_of(tensor);
  if (!type) {
    throw InputError(file.name() + ": tensor '" + printable(tensor.name) +
                     "': expected a type among " + read_types() + ", got " +
                     std::string(tensor.type->name));
  }
  const Tensor blocks = read_blocks(file, tensor);
  Tensor values = Tensor::empty(shape_of(tensor));
  visit_stored_blocks(*type, [&](auto format) {
    using Format = decltype(format);
    run(Device{}, kernels::DecodeBlocks<Format>{.n = values.size() / Format::kElements,
                                                .blocks = blocks.data<std::uint8_t>(),
                                                .x = values.data<float>()});
  });
  return values;
}

}  // namespace steelyard
