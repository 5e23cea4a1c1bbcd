#include "steelyard/export/onnx.h"

#include <stdexcept>

namespace steelyard::deploy {

bool can_write_onnx() { return false; }

void write_onnx(const std::filesystem::path&, const Graph&, const OnnxOptions&) {
  throw std::runtime_error(
      "export: built without ONNX: protoc, protobuf or onnx.proto was not found");
}

std::string onnx_model_sha256(const std::filesystem::path&) { return ""; }

}  // namespace steelyard::deploy
