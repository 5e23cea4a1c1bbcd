#include "steelyard/framework/data/arrays/array_dataset.h"

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/files.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;
using Arrays = std::map<std::string, NpyArray>;

Dataset dataset_of(const NpyArray& inputs, const NpyArray& targets) {
  Dataset dataset;
  dataset.source = npy_samples(inputs);
  dataset.targets = npy_targets(targets);
  dataset.classes = count_classes(dataset.targets, targets.name());
  return dataset;
}

std::string names_of(const Arrays& arrays) {
  std::string names;
  for (const auto& [name, array] : arrays) names += (names.empty() ? "" : ", ") + name;
  return printable(names);
}

const NpyArray& find(const Arrays& arrays, const std::string& name, const fs::path& path) {
  const auto found = arrays.find(name);
  if (found != arrays.end()) return found->second;
  throw InputError(printable(path.string()) + ": expected an array " + name + ", got " +
                   names_of(arrays));
}

Dataset load_split(const fs::path& folder, const std::string& split) {
  const fs::path packed = folder / (split + ".npz");
  if (path_exists(packed)) {
    const Arrays arrays = read_npy_file(packed);
    return dataset_of(find(arrays, "inputs", packed), find(arrays, "targets", packed));
  }
  const fs::path inputs = folder / (split + "_inputs.npy");
  const fs::path targets = folder / (split + "_targets.npy");
  if (!path_exists(inputs)) {
    throw InputError(printable(folder.string()) + ": expected " + split + ".npz, or " + split +
                     "_inputs.npy and " + split + "_targets.npy");
  }
  return dataset_of(find(read_npy_file(inputs), "", inputs),
                    find(read_npy_file(targets), "", targets));
}

DatasetSplits load_one_file(const fs::path& path) {
  const Arrays arrays = read_npy_file(path);
  DatasetSplits splits;
  if (arrays.contains("x_train")) {
    splits.train = dataset_of(find(arrays, "x_train", path), find(arrays, "y_train", path));
    splits.test = dataset_of(find(arrays, "x_test", path), find(arrays, "y_test", path));
  } else {
    splits.train = dataset_of(find(arrays, "inputs", path), find(arrays, "targets", path));
  }
  return splits;
}

}  // namespace

DatasetSplits load_arrays(const DatasetRequest& request) {
  const fs::path& path = request.path;
  const std::string source = printable(path.string());
  if (!is_folder(path)) {
    DatasetSplits splits = load_one_file(path);
    if (splits.test.size() == 0) return splits;
    splits.test.classes = splits.train.classes;
    require_same_samples(splits, source + ": x_test", "x_train");
    return splits;
  }
  if (request.parts == DatasetParts::kTest && !request.test_samples) {
    return {{}, load_split(path, "test")};
  }
  DatasetSplits splits{load_split(path, "train"), {}};
  if (request.test_samples) return splits;
  splits.test = load_split(path, "test");
  splits.test.classes = splits.train.classes;
  require_same_samples(splits, source + ": the test set", "the training set");
  return splits;
}

}  // namespace steelyard
