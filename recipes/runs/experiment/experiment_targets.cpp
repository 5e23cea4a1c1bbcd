// The normalization of a regression's targets: which runs have it, and with which numbers.
#include <array>

#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {
namespace {

constexpr const char* kKey = "data.normalize_targets";
constexpr const char* kAsTheyAre = ": false, the targets are as the data has them: ";

// What the outputs of a file's weights are: raw targets without a normalization. Nothing for a file
// that is no checkpoint of a regression, which does not say.
std::optional<Normalization> outputs_of_weights(const std::string& file) {
  if (kind_of(InputFile(file)) != kSafetensorsKind) return std::nullopt;
  return target_normalization_in(SafetensorsReader(file).header().metadata, file);
}

std::string note_of(const Normalization& targets) {
  constexpr std::size_t kMostNamed = 4;
  const std::size_t columns = targets.mean.size();
  const std::string numbers = columns <= kMostNamed ? normalize_text(targets)
                                                    : "of " + std::to_string(columns) + " columns";
  return std::string(kKey) + ": true, the loss is that of (target - mean) / std, " + numbers +
         "; predictions and exports are in the units of the data";
}

}  // namespace

Normalization Experiment::target_normalization_of(const Dataset& train) {
  const std::optional<bool> asked = recipe_.data.normalize_targets;
  const Loss::Type type = loss().type;
  const bool usual = type == Loss::Type::kMeanSquaredError || type == Loss::Type::kHuber;
  // A program's loss may compare more than differences.
  const bool own = type == Loss::Type::kOwn && target_kind() == TargetKind::kValues;
  if (!usual && !(own && asked)) {
    if (!asked.value_or(false)) return {};
    fail_at(
        place("data", "normalize_targets"),
        std::string(kKey) + ": expected a loss of numbers, mse or huber, got " + loss_name(loss()));
  }
  if (train.targets.rank() < 2) return {};  // of no model
  const auto& checkpoint = recipe_.init_checkpoint;
  // With init.skip the last layer is probably new, and learns whatever targets it gets.
  if (checkpoint && recipe_.init.skip.empty()) {
    const auto theirs =
        at_place(place("init", "checkpoint"), [&] { return outputs_of_weights(*checkpoint); });
    const bool normalized = theirs && std::ssize(theirs->mean) == train.targets.dim(-1);
    if (normalized && asked.value_or(true)) return *theirs;
    if (!asked) {
      notes_.push_back(std::string(kKey) + kAsTheyAre +
                       (theirs ? "init.checkpoint was trained on such"
                               : "init.checkpoint does not say what it was trained on"));
      return {};
    }
    if (*asked != normalized) {
      notes_.push_back("init.checkpoint gives " +
                       std::string(normalized ? "normalized targets, those of this run are not "
                                              : "no normalized targets, those of this run are ") +
                       "(" + kKey + ")");
    }
  } else if (recipe_.model.file() && !asked) {
    notes_.push_back(std::string(kKey) + kAsTheyAre + file_key() + " gives values in their units");
    return {};
  }
  return asked.value_or(true) ? compute_target_normalization(train) : Normalization{};
}

void Experiment::choose_target_normalization(const Registries& registries, const Dataset& train) {
  if (!recipe_.data.labels) return;
  target_normalization_ = target_normalization_of(train);
  const bool normalizes = !target_normalization_.mean.empty();
  if (normalizes) notes_.push_back(note_of(target_normalization_));
  if (target_kind() != TargetKind::kValues || recipe_.data.normalize_targets) return;
  // Written into the recipe, so that the run's folder says it; recipes of earlier versions do not.
  YamlNode document = recipe_.given;
  set_entry(*document.find("data"), "normalize_targets",
            yaml_scalar(normalizes ? "true" : "false"));
  recipe_ = read_recipe(std::move(document), registries);
}

void Experiment::normalize_all_targets() {
  raw_targets_ = {train_.targets, validation_.targets};
  at_place(place("data", recipe_.data.path ? "path" : "dataset"), [&] {
    for (Dataset* part : {&train_, &validation_, &test_}) {
      normalize_targets(*part, target_normalization_);
    }
  });
}

const std::string& Experiment::data_digest() const {
  if (!data_digest_.empty()) return data_digest_;
  std::array parts{train_, validation_};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].targets = raw_targets_[i];
  return data_digest_ = digest_of(parts);
}

}  // namespace steelyard
