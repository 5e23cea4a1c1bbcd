// Reads ONNX files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// Operation sets of ONNX that the reader takes.
inline constexpr std::int64_t kOldestOpset = 7;
inline constexpr std::int64_t kNewestOpset = 23;

// False in a build without protobuf.
bool can_read_onnx();

// Reads a file, with the tensors that it keeps in other files of its folder. Throws InputError that
// names the file, and the node or tensor, where it is no ONNX model, is truncated or damaged, has
// an operation set outside the range, a cycle, a value that nobody makes or two make, a tensor of
// another length than its shape says, or external data outside its folder; and in a build without
// protobuf.
OnnxModel read_onnx(const std::filesystem::path& path);

// The same of a file's bytes; `path` is what messages call them, and its folder has the tensors
// that are kept in other files.
OnnxModel parse_onnx(const std::string& bytes, const std::filesystem::path& path);

// What the file says of itself in addition to the graph: its producer and its metadata_props.
struct OnnxMetadata {
  std::string producer;
  std::map<std::string, std::string> properties;
};

// Reads that alone. Throws as read_onnx() where the file is no ONNX model or has a key twice.
OnnxMetadata read_onnx_metadata(const std::filesystem::path& path);

// A tensor in a file of its own, as ONNX's test cases have them. Throws as read_onnx().
Constant read_onnx_tensor(const std::filesystem::path& path);

}  // namespace steelyard::imports
