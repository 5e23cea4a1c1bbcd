#include "steelyard/framework/data/arrays/array_dataset.h"

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/named_inputs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

Dataset dataset_of(Dataset dataset, const StoredArray& targets) {
  dataset.targets = array_targets(targets);
  dataset.classes = count_classes(dataset.targets, targets.name());
  return dataset;
}

// Inputs that `get` finds by their names; one that is called `alone` if there are no names.
template <typename Get>
Dataset inputs_of(const std::vector<std::string>& names, const std::string& alone,
                  const std::string& file, const Get& get) {
  Dataset dataset;
  if (names.empty()) {
    dataset.source = array_samples(get(alone));
    return dataset;
  }
  std::vector<InputSource> inputs;
  for (const std::string& name : names) inputs.push_back({name, array_samples(get(name))});
  set_named_inputs(dataset, inputs, file);
  return dataset;
}

fs::path packed_split(const fs::path& folder, const std::string& split) {
  return folder / (split + ".npz");
}

// An array in a file of its own.
fs::path own_file(const fs::path& folder, const std::string& split, const std::string& name) {
  return folder / (split + "_" + name + ".npy");
}

// The first of a split's arrays in files of their own.
fs::path first_array(const fs::path& folder, const std::string& split,
                     const std::vector<std::string>& names) {
  return own_file(folder, split, names.empty() ? "inputs" : names[0]);
}

Dataset load_split(const fs::path& folder, const std::string& split,
                   const std::vector<std::string>& names) {
  const fs::path packed = packed_split(folder, split);
  const fs::path first = first_array(folder, split, names);
  if (only_one_of(folder, {packed.filename(), first.filename()}) == packed) {
    NpyFile file(packed);
    const auto array = [&](const std::string& name) { return file.array(name); };
    return dataset_of(inputs_of(names, "inputs", printable(packed.string()), array),
                      file.array("targets"));
  }
  if (!path_exists(first)) {
    throw InputError(printable(folder.string()) + ": expected " + split + ".npz, or " +
                     printable(first.filename().string()) + " and " + split + "_targets.npy" +
                     (split == "test" ? kOrTestAside : ""));
  }
  const auto array = [&](const std::string& name) {
    return NpyFile(own_file(folder, split, name)).array("");
  };
  return dataset_of(inputs_of(names, "inputs", printable(folder.string()), array),
                    array("targets"));
}

DatasetSplits load_one_file(const fs::path& path, const std::vector<std::string>& names) {
  NpyFile file(path);
  const auto array = [&](const std::string& name) { return file.array(name); };
  const auto one = [&](const std::string& inputs, const std::string& targets) {
    return dataset_of(inputs_of(names, inputs, printable(path.string()), array), array(targets));
  };
  if (names.empty() && file.contains("x_train")) {
    const bool has_test = file.contains("x_test") || file.contains("y_test");
    return {one("x_train", "y_train"), has_test ? one("x_test", "y_test") : Dataset{}};
  }
  return {one("inputs", "targets"), {}};
}

void require_samples(const Dataset& dataset, const std::string& source) {
  if (dataset.size() == 0) throw InputError(source + ": expected 1 sample or more, got 0");
}

}  // namespace

Dataset load_npy_inputs(const fs::path& path, const std::vector<std::string>& names) {
  NpyFile file(path);
  return inputs_of(names, "inputs", printable(path.string()),
                   [&](const std::string& name) { return file.array(name); });
}

DatasetSplits load_arrays(const DatasetRequest& request) {
  const fs::path& path = request.path;
  const std::string source = printable(path.string());
  if (!is_folder(path)) {
    DatasetSplits splits = load_one_file(path, request.inputs);
    if (!splits.test.source) return splits;
    require_samples(splits.test, source + ": x_test");
    splits.test.classes = splits.train.classes;
    require_same_samples(splits, source + ": x_test", "x_train");
    return splits;
  }
  const bool has_test = path_exists(packed_split(path, "test")) ||
                        path_exists(first_array(path, "test", request.inputs)) ||
                        path_exists(own_file(path, "test", "targets"));
  DatasetSplits splits;
  if (request.needs_train(has_test)) splits.train = load_split(path, "train", request.inputs);
  if (!request.needs_test(has_test)) return splits;
  splits.test = load_split(path, "test", request.inputs);
  if (request.parts == DatasetParts::kTest) return splits;
  require_samples(splits.test, source + ": the test set");
  splits.test.classes = splits.train.classes;
  require_same_samples(splits, source + ": the test set", "the training set");
  return splits;
}

}  // namespace steelyard
