#include "steelyard/import/onnx/joined_file.h"

#include "steelyard/import/onnx/onnx_file.h"

namespace steelyard::imports {

void join_files(const std::filesystem::path& source, const std::filesystem::path&,
                const std::filesystem::path&, const std::filesystem::path&) {
  read_onnx(source);  // says why not
}

}  // namespace steelyard::imports
