// Datasets by name, as recipes choose them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"

namespace steelyard {

// What a recipe says about its dataset.
struct DatasetRequest {
  std::string name;
  std::filesystem::path path;  // file or folder, as the loader expects
  // kTest: the training set is not needed, and may be absent on disk; a loader may leave it
  // undefined.
  DatasetParts parts = DatasetParts::kAll;
};

// An explicit table from names to loaders; to add a dataset, add a row.
class DatasetRegistry {
 public:
  using Loader = std::function<DatasetSplits(const DatasetRequest&)>;

  // An empty default path makes the path mandatory. Throws std::invalid_argument on a taken name.
  void add(std::string name, std::filesystem::path default_path, Loader loader);
  // Loads and validates both splits; an empty `path` takes the default. Throws InputError for an
  // unknown name (with the known ones), a missing path, and whatever the loader finds wrong. With
  // kTest the training set of the result may be undefined.
  DatasetSplits load(const std::string& name, const std::filesystem::path& path = {},
                     DatasetParts parts = DatasetParts::kAll) const;
  // Sorted.
  std::vector<std::string> names() const;

 private:
  struct Row {
    std::filesystem::path default_path;
    Loader loader;
  };
  std::map<std::string, Row> rows_;
};

// fashion_mnist, cifar10 and safetensors.
DatasetRegistry builtin_datasets();

}  // namespace steelyard
