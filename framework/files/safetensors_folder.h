// The tensors of a folder as Hugging Face's libraries write them: `model.safetensors`, or the files
// that `model.safetensors.index.json` names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"

namespace steelyard {

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

class SafetensorsFolder {
 public:
  // Throws InputError that names the file: neither is there, an index that is no such JSON, names a
  // file outside the folder or a tensor that its file lacks, a tensor that two files have.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  // Their paths.
  std::vector<std::filesystem::path> files() const;
  // The names of all tensors, sorted.
  std::vector<std::string> tensors() const;
  // Null where there is no such tensor.
  const SafetensorsEntry* find(const std::string& tensor) const;
  // The file that has this tensor, as messages show it.
  std::string file_of(const std::string& tensor) const;
  Tensor read(const std::string& tensor) const;

 private:
  struct Place {
    std::size_t reader, entry;
  };
  void add_file(const std::filesystem::path& path);

  std::vector<SafetensorsReader> readers_;
  std::map<std::string, Place> places_;
};

}  // namespace steelyard
