// A GGUF file with other values in its tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// The entries with general.file_type, llama.cpp's number of the type of most weights.
std::vector<GgufEntry> with_file_type(std::vector<GgufEntry> entries, std::uint32_t file_type);

// New values of a tensor.
struct GgufValues {
  std::string tensor;
  Tensor values;  // f32, of the tensor's shape
  // Absent: f32, or the file's own float type where that holds the values exactly.
  std::optional<kernels::BlockType> type = {};
  bool searched = false;  // with the scales of kernels/ggml_blocks/searched_formats.h
};

// Writes a file that has the source's entries, and its tensors in their order, some with new
// values: bytes are copied where they stand for a tensor's values already. general.file_type
// becomes that of the type that most of `values` ask for. `path` is replaced at once, and may be
// the source. Throws InputError that names the file and the tensor: values for a tensor that the
// source lacks or of another shape, values that are not finite, rows that are not whole blocks;
// std::invalid_argument for a type that blocks are not made of.
void rewrite_gguf(const GgufReader& source, const std::vector<GgufValues>& values,
                  const std::filesystem::path& path);

}  // namespace steelyard
