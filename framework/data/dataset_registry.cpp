#include "steelyard/framework/data/dataset_registry.h"

#include <stdexcept>
#include <utility>

#include "steelyard/framework/data/cifar10.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/memory_error.h"
#include "steelyard/framework/printable.h"
#include "steelyard/framework/suggest.h"

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

}  // namespace

void DatasetRegistry::add(std::string name, std::filesystem::path default_path, Loader loader) {
  const auto [row, added] =
      rows_.try_emplace(std::move(name), Row{std::move(default_path), std::move(loader)});
  if (!added) throw std::invalid_argument("[dataset_registry] '" + row->first + "' is taken");
}

DatasetSplits DatasetRegistry::load(const std::string& name, const std::filesystem::path& path,
                                    DatasetParts parts) const {
  const auto row = rows_.find(name);
  if (row == rows_.end()) throw InputError(unknown_name(name, names()));
  const DatasetRequest request{name, path.empty() ? row->second.default_path : path, parts};
  if (request.path.empty()) throw InputError("dataset '" + name + "' needs data.path");
  DatasetSplits splits =
      with_memory_for("dataset '" + name + "'", [&] { return row->second.loader(request); });
  if (parts == DatasetParts::kAll || splits.train.inputs.defined()) {
    validate_dataset(splits.train, name + " (train)");
  }
  validate_dataset(splits.test, name + " (test)");
  return splits;
}

std::vector<std::string> DatasetRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_) names.push_back(name);
  return names;
}

DatasetRegistry builtin_datasets() {
  DatasetRegistry registry;
  registry.add("fashion_mnist", "/usr/share/datasets/fashion-mnist",
               [](const DatasetRequest& r) { return load_fashion_mnist(r.path, r.parts); });
  registry.add("cifar10", "",
               [](const DatasetRequest& r) { return load_cifar10(r.path, r.parts); });
  registry.add("safetensors", "",
               [](const DatasetRequest& r) { return load_safetensors_dataset(r.path, r.parts); });
  return registry;
}

}  // namespace steelyard
