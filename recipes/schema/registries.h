// The parts that recipes may name: the library's, and those that a program adds before it reads
// recipes. A plugin adds them to the command line's (recipes/runs/plugin.h).
//
//   struct Focal { double gamma = 2; };
//   Registries registries;
//   registries.add_loss<Focal>(
//       "focal", "cross-entropy of what is not learned yet",
//       {key("gamma", "exponent", &Focal::gamma).by_default().within(0, 10)},
//       [](const Focal& options) { return LossInfo{...}; });
//   Run run("recipe.yaml", {}, registries);  // train: {loss: focal, gamma: 1.5}
//
// Options stand beside the key that names the part; they are checked, resolved and documented like
// the library's. What a part throws is thrown on with the part's name and its plugin's, but for
// InputError, whose message has the place that is wrong.
#pragma once

#include <any>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/words.h"
#include "steelyard/framework/train/metrics.h"
#include "steelyard/observers/registry.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {

enum class PartKind { kDataset, kModel, kLayer, kLoss, kMetric, kObserver };

inline constexpr Word<PartKind> kPartKindWords[] = {
    {PartKind::kDataset, "dataset"}, {PartKind::kModel, "model"},
    {PartKind::kLayer, "layer"},     {PartKind::kLoss, "loss"},
    {PartKind::kMetric, "metric"},   {PartKind::kObserver, "observer"},
};
static_assert(is_complete<PartKind>(kPartKindWords, PartKind::kObserver));
constexpr std::span<const Word<PartKind>> words_of(PartKind) { return kPartKindWords; }

// A part that is none of the library's.
struct OwnPart {
  PartKind kind = PartKind::kDataset;
  std::string name = {};
  std::string plugin = {};  // that added it; empty: the program itself
  bool operator==(const OwnPart&) const = default;
};

// A program's row of a kind whose options stand in a recipe: what a table that names it makes.
template <typename Made>
struct OwnRow {
  OptionCase described = {};  // its name, help and options
  std::function<Made(const YamlNode& resolved)> make = {};
};

// A shared object whose parts were added.
struct LoadedPlugin {
  std::string name = {};
  std::filesystem::path file = {};
  std::string sha256 = {};
};

// Rethrows what is being caught, for in_part().
[[noreturn]] void rethrow_of_part(const std::string& part);

// Calls f; what it throws, but for InputError, is thrown on with `part` before its message.
template <typename F>
auto in_part(const std::string& part, const F& f);

// Calls the observer so too; null where it is.
std::unique_ptr<observers::Observer> observer_of_part(
    const std::string& part, std::unique_ptr<observers::Observer> observer);
// Calls the samples' sources so too; errors of one sample also have its name.
DatasetSplits splits_of_part(const std::string& part, DatasetSplits splits);

// The functions throw std::invalid_argument for a name that is taken, by the library or before.
struct Registries {
  ModelRegistry models = builtin_models();
  DatasetRegistry datasets = builtin_datasets();
  std::vector<OwnRow<std::any>> dataset_options = {};  // of datasets that have some
  std::vector<OwnRow<LossInfo>> own_losses = {};
  std::vector<OwnRow<observers::ObserverRow>> own_observers = {};
  std::vector<MetricInfo> own_metrics = {};
  qat::QuantizedForms own_forms = {};
  std::vector<LoadedPlugin> plugins = {};
  std::string adding = {};               // the plugin whose parts are being added
  std::vector<OwnPart> of_plugins = {};  // that plugins added

  // A dataset; an empty default path makes `data.path` mandatory.
  template <typename T>
  void add_dataset(const std::string& name, const std::string& help, std::vector<Row<T>> rows,
                   const std::filesystem::path& default_path,
                   std::function<DatasetSplits(const T& options, const DatasetRequest&)> load) {
    const std::string part = note_part(PartKind::kDataset, name);
    datasets.add(name, default_path, [part, load = std::move(load)](const DatasetRequest& request) {
      const auto* given = std::any_cast<T>(&request.options);
      return splits_of_part(
          part, in_part(part, [&] { return load(given != nullptr ? *given : T(), request); }));
    });
    dataset_options.push_back(
        row_of<std::any>(name, help, std::move(rows), [](const T& options) { return options; }));
  }
  // A loss, as `train.loss`; its `name` and `type` are set here.
  template <typename T>
  void add_loss(const std::string& name, const std::string& help, std::vector<Row<T>> rows,
                std::function<LossInfo(const T& options)> make) {
    const std::string part = note_part(PartKind::kLoss, name);
    own_losses.push_back(row_of<LossInfo>(
        name, help, std::move(rows), [part, name, make = std::move(make)](const T& options) {
          return named_loss(part, name, in_part(part, [&] { return make(options); }));
        }));
  }
  // An observer of weights or activations.
  template <typename T>
  void add_observer(const std::string& name, const std::string& help, std::vector<Row<T>> rows,
                    bool over_shards,  // observers::ObserverRow::over_shards
                    std::function<std::unique_ptr<observers::Observer>(
                        const T& options, const observers::QScheme& scheme, std::int64_t channels)>
                        make) {
    const std::string part = note_part(PartKind::kObserver, name);
    own_observers.push_back(row_of<observers::ObserverRow>(
        name, help, std::move(rows), [=, make = std::move(make)](const T& options) {
          return observers::ObserverRow{
              .make =
                  [=](const observers::ObserverOptions&, const observers::QScheme& scheme,
                      std::int64_t channels) {
                    return observer_of_part(
                        part, in_part(part, [&] { return make(options, scheme, channels); }));
                  },
              .over_shards = over_shards};
        }));
  }
  // A metric of the losses that it names; `value` is not empty.
  void add_metric(MetricInfo metric);
  // A type of `model.layers`, or a `model.type`.
  template <typename T>
  void add_layer(const std::string& type, const std::string& help, std::vector<Row<T>> rows,
                 std::function<std::shared_ptr<Module>(const T&, const LayerSpec&, Rng&)> make) {
    add_module(PartKind::kLayer, type, help, std::move(rows), std::move(make));
  }
  template <typename T>
  void add_model(const std::string& type, const std::string& help, std::vector<Row<T>> rows,
                 std::function<std::shared_ptr<Module>(const T&, const LayerSpec&, Rng&)> make) {
    add_module(PartKind::kModel, type, help, std::move(rows), std::move(make));
  }
  // The quantized form of a layer.
  void add_form(qat::QuantizedForm form);

  // The library's, then those that were added.
  std::vector<std::string> names(PartKind kind) const;
  bool has(PartKind kind, const std::string& name) const;
  // All parts that are not the library's.
  std::vector<OwnPart> own_parts() const;
  // The digest of the plugins that were loaded; empty without any.
  std::string digest_of_plugins() const;
  // How messages call a part: "the loss 'focal' of the plugin own_parts".
  std::string text_of(PartKind kind, const std::string& name) const;
  // The plugin that added a part; empty for the program's own and the library's.
  std::string plugin_of(PartKind kind, const std::string& name) const;

 private:
  // Throws where the name is taken; how messages call the part.
  std::string note_part(PartKind kind, const std::string& name);
  static LossInfo named_loss(const std::string& part, const std::string& name, LossInfo loss);

  template <typename Made, typename T, typename Make>
  static OwnRow<Made> row_of(const std::string& name, const std::string& help,
                             std::vector<Row<T>> rows, Make make) {
    const Table<T> table("", std::move(rows));
    return {{name, help, table.option().members},
            [table, make = std::move(make)](const YamlNode& resolved) -> Made {
              return make(table.read(resolved));
            }};
  }

  template <typename T>
  void add_module(PartKind kind, const std::string& type, const std::string& help,
                  std::vector<Row<T>> rows,
                  std::function<std::shared_ptr<Module>(const T&, const LayerSpec&, Rng&)> make) {
    const std::string part = note_part(kind, type);
    const Table<T> table("", std::move(rows));
    const ModuleFactory factory = [=](const LayerSpec& spec, Rng& rng) {
      std::shared_ptr<Module> made =
          in_part(part, [&] { return make(table.read(spec.node()), spec, rng); });
      if (made) made->set_part({part, rethrow_of_part});
      return made;
    };
    if (kind == PartKind::kLayer) {
      models.add_layer(type, help, table.option().members, factory);
    } else {
      models.add_model(type, help, table.option().members, factory);
    }
  }
};

// The names of a program that adds none.
const Registries& builtin_registries();

// The row of a name, or null.
template <typename Made>
const OwnRow<Made>* find_row(const std::vector<OwnRow<Made>>& rows, const std::string& name) {
  for (const OwnRow<Made>& row : rows) {
    if (row.described.value == name) return &row;
  }
  return nullptr;
}

// The options of all rows, for a table that one of their names chooses.
template <typename Made>
OptionCases cases_of(const std::vector<OwnRow<Made>>& rows) {
  OptionCases cases;
  for (const OwnRow<Made>& row : rows) cases.cases.push_back(row.described);
  return cases;
}

template <typename F>
auto in_part(const std::string& part, const F& f) {
  try {
    return f();
  } catch (...) {
    rethrow_of_part(part);
  }
}

}  // namespace steelyard
