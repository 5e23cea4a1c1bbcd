#include "steelyard/import/onnx/onnx_file.h"

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {

bool can_read_onnx() { return false; }

namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw InputError(printable(path.string()) +
                   ": built without ONNX: protoc, protobuf or onnx.proto was not found");
}

}  // namespace

OnnxModel read_onnx(const std::filesystem::path& path) { fail(path); }
OnnxModel parse_onnx(const std::string&, const std::filesystem::path& path) { fail(path); }
OnnxMetadata read_onnx_metadata(const std::filesystem::path& path) { fail(path); }
Constant read_onnx_tensor(const std::filesystem::path& path) { fail(path); }

}  // namespace steelyard::imports
