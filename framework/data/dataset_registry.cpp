#include "steelyard/framework/data/dataset_registry.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "steelyard/framework/data/arrays/array_dataset.h"
#include "steelyard/framework/data/cifar.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/data/images/image_folder.h"
#include "steelyard/framework/data/known_classes.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/data/shards/shard_dataset.h"
#include "steelyard/framework/data/tables/table_dataset.h"
#include "steelyard/framework/data/tokens/token_dataset.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

std::string unknown_name(const std::string& name, const std::vector<std::string>& known) {
  std::string text = "unknown dataset '" + printable(name) + "'";
  if (const std::string nearest = nearest_word(name, known); !nearest.empty()) {
    text += " (did you mean '" + nearest + "'?)";
  }
  text += "; known:";
  for (const std::string& candidate : known) text += " " + candidate;
  return text;
}

// The seed that chooses test samples: the same samples whatever the run's seed, as for validation.
constexpr std::uint64_t kTestSeed = 1;

void set_test_aside(const DatasetRequest& request, DatasetSplits& splits) {
  const bool has_test = splits.test.size() > 0;
  if (has_test && request.test_samples) {
    throw InputError("data.test: the dataset has a test set of its own");
  }
  if (has_test || splits.train.size() == 0) return;
  if (!request.labels && !request.test_samples && splits.train.size() == 1) {
    splits.test = splits.train;
    splits.notes.push_back(printable(request.path.string()) +
                           ": the only sample is the test set too");
    return;
  }
  if (!request.test_samples) {
    throw InputError(printable(request.path.string()) +
                     ": there is no test set; data.test sets samples of it aside");
  }
  // Before samples change their numbers, which messages name.
  const std::string source = printable(request.path.string());
  require_target_for_each(splits.train, source);
  validate_targets(splits.train, source);
  if (request.stratified) require_strata(splits.train);
  try {
    const Dataset all = splits.train;
    std::tie(splits.train, splits.test) =
        split_test(all, *request.test_samples, kTestSeed, request.stratified);
  } catch (const InputError& error) {
    throw InputError(std::string("data.test: ") + error.what());
  }
}

// Zero columns stand for a dataset of inputs alone, which nobody has asked for.
void require_targets(const DatasetRequest& request, const Dataset& dataset) {
  if (has_targets(dataset)) return;
  throw InputError(
      printable(request.path.string()) + ": expected targets of one value or more, got f32 " +
      shape_string(dataset.targets.shape()) + " (data.labels: false reads inputs alone)");
}

// A sample of two dimensions is an image, unless it is a sequence.
void add_channels(const DatasetRequest& request, DatasetSplits& splits) {
  for (Dataset* dataset : {&splits.train, &splits.test}) {
    if (dataset->size() == 0 || (request.sequences && dataset->dtype() == DType::kF32)) continue;
    add_channel_dimension(*dataset);
  }
}

void require_named_inputs(const DatasetRequest& request, const DatasetSplits& splits) {
  if (request.inputs.empty() || !splits.test.names.inputs.empty()) return;
  throw InputError("data.inputs: the dataset " + request.name +
                   " has no arrays with names; arrays and safetensors have");
}

// Images in files are transformed where they are decoded.
void transform(const DatasetRequest& request, DatasetSplits& splits) {
  if (!request.transforms) return;
  for (Dataset* dataset : {&splits.train, &splits.test}) {
    if (dataset->size() == 0 || (dataset->source && dataset->source->decodes())) continue;
    dataset->source = transformed_samples(samples_of(*dataset), *request.transforms);
    dataset->inputs = Tensor();
  }
}

// Names for labels that a dataset has as numbers: `classes`, unless the request has others.
void name_numbers(const DatasetRequest& request, const std::vector<std::string>& classes,
                  Dataset& dataset) {
  const std::vector<std::string>& asked = request.known_classes();
  const bool own = asked.empty() && !request.names && !request.without_names;
  const std::vector<std::string>& names = own ? classes : asked;
  if (names.empty() || !dataset.names.classes.empty()) return;
  if (dataset.classes == 0) {
    if (request.names) return;
    throw InputError(request.targets.names_source +
                     ": the targets are numbers, expected no data.class_names");
  }
  if (dataset.classes > std::ssize(names)) {
    throw InputError(request.targets.names_source + ": expected " +
                     std::to_string(dataset.classes) +
                     " names or more, the data has labels up to " +
                     std::to_string(dataset.classes - 1) + "; got " + std::to_string(names.size()));
  }
  dataset.names.classes = names;
  dataset.classes = std::ssize(names);
}

// What reading leaves to whoever makes a dataset: names that fit, and two sets for one model.
void require_alike(const std::string& dataset, DatasetSplits& splits) {
  auto& [train, test, notes] = splits;
  const bool both = train.size() > 0 && test.size() > 0;
  if (both) {
    require_test_of(train, test, dataset + ": the test set");
    test.classes = std::max(test.classes, train.classes);  // it need not have all
  }
  if (train.size() > 0) require_names(train, dataset + ": the training set");
  require_names(test, dataset + ": the test set");
}

}  // namespace

void DatasetRegistry::add(std::string name, std::filesystem::path default_path, Loader loader,
                          std::vector<std::string> classes) {
  const auto [row, added] = rows_.try_emplace(
      std::move(name), Row{std::move(default_path), std::move(loader), std::move(classes)});
  if (!added) throw std::invalid_argument("[dataset_registry] '" + row->first + "' is taken");
}

DatasetSplits DatasetRegistry::load(DatasetRequest request) const {
  const std::string& name = request.name;
  const auto row = rows_.find(name);
  if (row == rows_.end()) throw InputError(unknown_name(name, names()));
  if (request.path.empty()) request.path = row->second.default_path;
  if (request.path.empty()) throw InputError("dataset '" + name + "' needs data.path");
  DatasetSplits splits =
      with_memory_for("dataset '" + name + "'", [&] { return row->second.loader(request); });
  for (Dataset* dataset : {&splits.train, &splits.test}) {
    if (dataset->size() == 0) continue;
    if (!request.labels) {
      drop_targets(*dataset);
      continue;
    }
    require_targets(request, *dataset);
    convert_targets(*dataset, request.targets);
    name_numbers(request, row->second.classes, *dataset);
  }
  set_test_aside(request, splits);
  require_named_inputs(request, splits);
  add_channels(request, splits);
  transform(request, splits);
  const std::string source = printable(request.path.string());
  if (request.parts == DatasetParts::kAll || splits.train.size() > 0) {
    validate_dataset(splits.train, source + ": the training set");
  }
  validate_dataset(splits.test, source + ": the test set");
  require_alike("dataset '" + name + "'", splits);
  return splits;
}

DatasetSplits DatasetRegistry::load(const std::string& name, const std::filesystem::path& path,
                                    DatasetParts parts) const {
  return load({.name = name, .path = path, .parts = parts});
}

std::vector<std::string> DatasetRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_) names.push_back(name);
  return names;
}

DatasetRegistry builtin_datasets() {
  DatasetRegistry registry;
  registry.add("fashion_mnist", "/usr/share/datasets/fashion-mnist", load_fashion_mnist,
               fashion_mnist_classes());
  registry.add("idx", "", load_idx);
  registry.add("cifar10", "", load_cifar10, cifar10_classes());
  registry.add("cifar100", "", load_cifar100, cifar100_classes());
  registry.add("safetensors", "", load_safetensors_dataset);
  registry.add("images", "", load_images);
  registry.add("shards", "", load_shards);
  registry.add("table", "", load_table);
  registry.add("arrays", "", load_arrays);
  registry.add("tokens", "", load_tokens);
  return registry;
}

}  // namespace steelyard
