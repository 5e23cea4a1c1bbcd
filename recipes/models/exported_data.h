// What exports say about the data of their model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/runtime/graph.h"

namespace steelyard {

struct ExportedData {
  deploy::Preprocessing preprocessing;
  TargetKind target = TargetKind::kClass;
  std::vector<std::string> class_names = {};  // as deploy::Graph has them
};

// The keys of a recipe, with their sections, that the file fills in where the recipe is silent.
inline constexpr std::pair<const char*, const char*> kExportedKeys[] = {
    {"data", "normalize"}, {"data", "transforms"}, {"train", "loss"}};

// What the metadata of an ONNX file says that Steelyard exported. Nothing for a file of another
// program, or another kind of file. Throws InputError that names the
// file and the key of its metadata for values that no export writes.
std::optional<ExportedData> exported_data_in(const std::filesystem::path& path);

}  // namespace steelyard
