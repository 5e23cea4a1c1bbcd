#include "steelyard/framework/data/arrays/array_dataset.h"

#include "steelyard/framework/data/arrays/array_files.h"
#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/images/image_folder.h"
#include "steelyard/framework/data/named_inputs.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

// With the targets that `get` finds, where they are asked for.
template <typename Get>
Dataset with_targets(Dataset dataset, bool labels, const std::string& name, const Get& get) {
  if (!labels) {
    drop_targets(dataset);
    return dataset;
  }
  const StoredArray targets = get(name);
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

Dataset load_split(const DatasetRequest& request, const std::string& split) {
  const fs::path& folder = request.path;
  const std::vector<std::string>& names = request.inputs;
  const fs::path packed = packed_split(folder, split);
  const fs::path first = first_array(folder, split, names);
  if (only_one_of(folder, {packed.filename(), first.filename()}) == packed) {
    NpyFile file(packed);
    const auto array = [&](const std::string& name) { return file.array(name); };
    return with_targets(inputs_of(names, "inputs", printable(packed.string()), array),
                        request.labels, "targets", array);
  }
  if (!path_exists(first)) {
    throw InputError(printable(folder.string()) + ": expected " + split + ".npz, or " +
                     printable(first.filename().string()) +
                     (request.labels ? " and " + split + "_targets.npy" : "") +
                     (split == "test" ? kOrTestAside : ""));
  }
  const auto array = [&](const std::string& name) {
    return NpyFile(own_file(folder, split, name)).array("");
  };
  return with_targets(inputs_of(names, "inputs", printable(folder.string()), array), request.labels,
                      "targets", array);
}

// The array that is the inputs of a file where nobody names them.
std::string only_inputs(const NpyFile& file, const std::string& source) {
  const std::vector<std::string> names = file.names();
  if (names.size() == 1 || file.contains("inputs")) return names.size() == 1 ? names[0] : "inputs";
  std::string got;
  for (const std::string& name : names) got += (got.empty() ? "" : ", ") + name;
  throw InputError(source + ": expected one array, or inputs or x_train of several, got " +
                   printable(got) + " (data.inputs names the arrays of samples that have several)");
}

DatasetSplits load_one_file(const DatasetRequest& request) {
  const std::string source = printable(request.path.string());
  const std::vector<std::string>& names = request.inputs;
  NpyFile file(request.path);
  const auto array = [&](const std::string& name) { return file.array(name); };
  const auto one = [&](const std::string& inputs, const std::string& targets) {
    return with_targets(inputs_of(names, inputs, source, array), request.labels, targets, array);
  };
  if (names.empty() && file.contains("x_train")) {
    const bool has_test = file.contains("x_test") || (request.labels && file.contains("y_test"));
    return {one("x_train", "y_train"), has_test ? one("x_test", "y_test") : Dataset{}};
  }
  const bool any_name = names.empty() && !request.labels;
  return {one(any_name ? only_inputs(file, source) : "inputs", "targets"), {}};
}

// Inputs without targets and without a test set: an array NAME.npy for each of data.inputs, or a
// sample in each .npy file.
DatasetSplits load_unlabelled_folder(const DatasetRequest& request) {
  const fs::path& folder = request.path;
  const std::string source = printable(folder.string());
  DatasetSplits splits;
  if (!request.inputs.empty()) {
    splits.train = inputs_of(request.inputs, "", source, [&](const std::string& name) {
      return NpyFile(folder / (name + ".npy")).array("");
    });
    drop_targets(splits.train);
    return splits;
  }
  std::vector<fs::path> arrays;
  OtherFiles others;
  for (const fs::path& entry : folder_entries(folder)) {
    const std::string name = entry.filename().string();
    const bool is_array = name.ends_with(".npy") && !name.starts_with('.') && !is_folder(entry);
    is_array ? arrays.push_back(entry) : others.add(entry);
  }
  const std::optional<std::string> note = others.note(folder, "array");
  if (arrays.empty()) {
    throw InputError(source +
                     ": expected train.npz, train_inputs.npy, or .npy files, each of one sample" +
                     (note ? "; " + note->substr(source.size() + 2) : ""));
  }
  if (note) splits.notes.push_back(*note);
  splits.train.source = array_files(std::move(arrays));
  drop_targets(splits.train);
  return splits;
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
    DatasetSplits splits = load_one_file(request);
    if (!splits.test.source) return splits;
    require_samples(splits.test, source + ": x_test");
    splits.test.classes = splits.train.classes;
    require_same_samples(splits, source + ": x_test", "x_train");
    return splits;
  }
  const auto has_inputs = [&](const std::string& split) {
    return path_exists(packed_split(path, split)) ||
           path_exists(first_array(path, split, request.inputs));
  };
  const bool has_test =
      has_inputs("test") || (request.labels && path_exists(own_file(path, "test", "targets")));
  if (!request.labels && !has_test && !has_inputs("train")) return load_unlabelled_folder(request);
  DatasetSplits splits;
  if (request.needs_train(has_test)) splits.train = load_split(request, "train");
  if (!request.needs_test(has_test)) return splits;
  splits.test = load_split(request, "test");
  if (request.parts == DatasetParts::kTest) return splits;
  require_samples(splits.test, source + ": the test set");
  splits.test.classes = splits.train.classes;
  require_same_samples(splits, source + ": the test set", "the training set");
  return splits;
}

}  // namespace steelyard
