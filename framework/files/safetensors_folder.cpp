#include "steelyard/framework/files/safetensors_folder.h"

#include <nlohmann/json.hpp>
#include <set>

#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/files/json_problem.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr const char* kMap = "weight_map";
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMostFiles = 4096;

// The file of each tensor.
std::map<std::string, std::string> index_in(const std::filesystem::path& path) {
  const std::string name = printable(path.string());
  try {
    const auto json = nlohmann::json::parse(read_file(path, kMostIndexBytes));
    const auto map = json.is_object() ? json.find(kMap) : json.end();
    if (map == json.end() || !map->is_object()) {
      throw InputError(name + ": expected an object '" + kMap + "' of tensors and their files");
    }
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : map->items()) {
      const std::string text = file.is_string() ? file.get<std::string>() : "";
      if (text.empty() || text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
        throw InputError(name + ": " + kMap + ": '" + printable(tensor) +
                         "': expected the name of a file in the folder, got " + described(file));
      }
      files[tensor] = text;
    }
    return files;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(json_problem(name, error));
  }
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) {
  if (path_exists(folder / kWeightsFile)) {
    add_file(folder / kWeightsFile);
    return;
  }
  if (!path_exists(folder / kWeightsIndexFile)) {
    throw InputError(printable(folder.string()) + ": expected " + kWeightsFile + " or " +
                     kWeightsIndexFile + " in this folder");
  }
  const auto index = index_in(folder / kWeightsIndexFile);
  const std::string name = printable((folder / kWeightsIndexFile).string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(file);
  if (files.size() > kMostFiles) {
    throw InputError(name + ": expected at most " + std::to_string(kMostFiles) + " files, got " +
                     std::to_string(files.size()));
  }
  for (const std::string& file : files) add_file(folder / file);
  for (const auto& [tensor, file] : index) {
    const auto found = places_.find(tensor);
    if (found != places_.end() && readers_[found->second.reader].file()->path() == folder / file) {
      continue;
    }
    throw InputError(name + ": expected a tensor '" + printable(tensor) + "' in " +
                     printable(file) + ", which has none of this name");
  }
}

void SafetensorsFolder::add_file(const std::filesystem::path& path) {
  const SafetensorsReader& reader = readers_.emplace_back(path);
  const auto& entries = reader.header().entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (places_.emplace(entries[i].name, Place{readers_.size() - 1, i}).second) continue;
    throw InputError(reader.name() + ": tensor '" + printable(entries[i].name) +
                     "': " + file_of(entries[i].name) + " has one of this name too");
  }
}

std::vector<std::filesystem::path> SafetensorsFolder::files() const {
  std::vector<std::filesystem::path> paths;
  for (const SafetensorsReader& reader : readers_) paths.push_back(reader.file()->path());
  return paths;
}

std::vector<std::string> SafetensorsFolder::tensors() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const SafetensorsEntry* SafetensorsFolder::find(const std::string& tensor) const {
  const auto found = places_.find(tensor);
  if (found == places_.end()) return nullptr;
  return &readers_[found->second.reader].header().entries[found->second.entry];
}

std::string SafetensorsFolder::file_of(const std::string& tensor) const {
  return readers_[places_.at(tensor).reader].name();
}

Tensor SafetensorsFolder::read(const std::string& tensor) const {
  return readers_[places_.at(tensor).reader].read(*find(tensor));
}

}  // namespace steelyard
