// Writes a graph as an ONNX file of QuantizeLinear and DequantizeLinear (docs/exports.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

struct OnnxOptions {
  // kOrt: s8 codes are written as u8, 128 added to them and to their zero points, because ONNX
  // Runtime for x86 fuses s8 only where a tensor has one reader. kTensorrt: as they are.
  qat::Profile profile = qat::Profile::kOrt;
  // Weights of at most 4 bits as INT4, which needs opset 21; else as INT8.
  bool pack_int4 = true;
  // The largest file: what protobuf can read.
  std::uint64_t max_bytes = 2147483647;
};

// False in a build without protobuf.
bool can_write_onnx();

// Replaces `path` by the model: input "input" f32 [N, C, H, W] (or [N, features]), output "output"
// f32, N free, and what why_sizes_are_fixed() has no reason against. Equal graphs give equal bytes.
// Throws InputError naming the node where the graph is not valid, has no form in ONNX or is too
// large, and std::runtime_error in a build without protobuf.
void write_onnx(const std::filesystem::path& path, const Graph& graph,
                const OnnxOptions& options = {});

// Why an ONNX file of the graph has fixed sizes although its ports have free ones: the tensor that
// depends on them. "" where it has free ones, or the ports have none, and in a build without
// protobuf.
std::string why_sizes_are_fixed(const Graph& graph, const OnnxOptions& options = {});
// Whether an ONNX file has inputs with a free size besides the batch's. Throws InputError when it
// cannot be read.
bool onnx_has_free_sizes(const std::filesystem::path& path);

// The digest of the model that write_onnx() made the file from; empty where the file does not say
// it or is no ONNX file, and in a build without protobuf. Throws InputError when it cannot be read.
std::string onnx_model_sha256(const std::filesystem::path& path);

}  // namespace steelyard::deploy
