// Datasets by name, as recipes choose them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// An explicit table from names to loaders; to add a dataset, add a row.
class DatasetRegistry {
 public:
  using Loader = std::function<DatasetSplits(const DatasetRequest&)>;

  // An empty default path makes the path mandatory. `classes` are the names of a dataset whose
  // files have numbers only. Throws std::invalid_argument on a taken name.
  void add(std::string name, std::filesystem::path default_path, Loader loader,
           std::vector<std::string> classes = {});
  // Loads and validates both splits; an empty `path` takes the default. Images in memory are
  // transformed as the request says, and its test samples are set aside where the dataset has no
  // test set; of inputs alone, an only sample is both sets, with a note. Throws InputError for an
  // unknown name (with the known ones), a missing path, and whatever the loader finds wrong. With
  // kTest the training set of the result may be undefined.
  DatasetSplits load(DatasetRequest request) const;
  DatasetSplits load(const std::string& name, const std::filesystem::path& path = {},
                     DatasetParts parts = DatasetParts::kAll) const;
  // Sorted.
  std::vector<std::string> names() const;

 private:
  struct Row {
    std::filesystem::path default_path;
    Loader loader;
    std::vector<std::string> classes;
  };
  std::map<std::string, Row> rows_;
};

// fashion_mnist, idx, cifar10, cifar100, safetensors, images, shards, table, arrays and tokens.
DatasetRegistry builtin_datasets();

}  // namespace steelyard
