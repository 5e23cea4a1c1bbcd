#include "steelyard/recipes/models/exported_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard {
namespace {

using Properties = std::map<std::string, std::string>;

// Calls `take` with the value of the key, where the file has it.
template <typename Take>
void read(const Properties& properties, const std::string& key, const std::string& file,
          const Take& take) {
  const auto found = properties.find(key);
  if (found == properties.end()) return;
  try {
    take(found->second);
  } catch (const std::exception& error) {  // of the JSON reader, of wrong types, of wrong values
    throw InputError(printable(file) + ": metadata '" + key +
                     "' is not valid: " + printable(error.what()));
  }
}

void require_normalization(const Normalization& normalization) {
  const auto& [mean, stddev] = normalization;
  const auto finite = [](float v) { return std::isfinite(v); };
  const bool fits =
      mean.size() == stddev.size() && std::all_of(mean.begin(), mean.end(), finite) &&
      std::all_of(stddev.begin(), stddev.end(), [&](float v) { return finite(v) && v > 0; });
  if (fits) return;
  throw InputError("expected finite means and as many deviations above 0, got " +
                   std::to_string(mean.size()) + " and " + std::to_string(stddev.size()));
}

void require_names(const std::vector<std::string>& names, TargetKind target) {
  std::set<std::string> different;
  for (const std::string& name : names) {
    if (!different.insert(name).second) throw InputError("'" + name + "' is there twice");
    const bool blank = target == TargetKind::kText && different.size() == 1;
    if (name.empty() != blank) {
      throw InputError(blank ? "expected \"\", the blank, as first character, got '" + name + "'"
                             : "a name is empty");
    }
  }
}

}  // namespace

std::optional<ExportedData> exported_data_in(const std::filesystem::path& path) {
  if (kind_of(InputFile(path)) == kSafetensorsKind) return std::nullopt;
  const imports::OnnxMetadata metadata = imports::read_onnx_metadata(path);
  if (metadata.producer != "steelyard" || !metadata.properties.contains("preprocessing")) {
    return std::nullopt;
  }
  ExportedData data;
  const std::string file = path.string();
  read(metadata.properties, "preprocessing", file, [&](const std::string& text) {
    data.preprocessing = deploy::preprocessing_from(nlohmann::json::parse(text));
    require_normalization(data.preprocessing.normalization);
  });
  read(metadata.properties, "target", file,
       [&](const std::string& text) { data.target = value_of<TargetKind>(text); });
  read(metadata.properties, "class_names", file, [&](const std::string& text) {
    nlohmann::json::parse(text).get_to(data.class_names);
    require_names(data.class_names, data.target);
  });
  return data;
}

}  // namespace steelyard
