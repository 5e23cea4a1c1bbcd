// The values of a GGUF file's tensors.
#pragma once

#include <optional>

#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// The type of a tensor, if its blocks can be read as values.
std::optional<kernels::BlockType> block_type_of(const GgufTensor& tensor);

// The shape of a tensor, outermost dimension first.
Shape shape_of(const GgufTensor& tensor);

// The bytes u8 [rows, bytes of a row] of one of the file's tensors, of any type.
Tensor read_blocks(const GgufReader& file, const GgufTensor& tensor);

// The values of one of the file's tensors, f32. Throws InputError that names file and tensor where
// its type is none of those that are read.
Tensor read_values(const GgufReader& file, const GgufTensor& tensor);

}  // namespace steelyard
