#include "export/onnx.h"

#include <stdexcept>

namespace steelyard::deploy {

void write_onnx(const std::filesystem::path&, const Graph&, const OnnxOptions&) {
  throw std::runtime_error(
      "export: built without ONNX: protoc, protobuf or onnx.proto was not found");
}

}  // namespace steelyard::deploy
