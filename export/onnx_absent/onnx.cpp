#include "steelyard/export/onnx/onnx.h"

#include <stdexcept>

namespace steelyard::deploy {

bool can_write_onnx() { return false; }

void write_onnx(const std::filesystem::path&, const Graph&, const OnnxOptions&) {
  throw std::runtime_error(
      "export: built without ONNX: protoc, protobuf or onnx.proto was not found");
}

std::string why_sizes_are_fixed(const Graph&, const OnnxOptions&) { return ""; }
bool onnx_has_free_sizes(const std::filesystem::path&) { return false; }
std::string onnx_model_sha256(const std::filesystem::path&) { return ""; }

}  // namespace steelyard::deploy
