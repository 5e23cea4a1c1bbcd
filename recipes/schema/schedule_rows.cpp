// The section `schedule`: what changes when.
#include <algorithm>

#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

using qat::BitStage;
using qat::QatSchedule;
using qat::QuantizeGroup;
using qat::QuantizerConfig;

constexpr double kMaxEpoch = 1e6;

template <typename V>
Row<Recipe> epoch_key(const std::string& name, const std::string& help, V QatSchedule::*member) {
  return key(name, help, &Recipe::schedule, member).within(0, kMaxEpoch);
}

// A table of one required key: what happens in which epoch.
Row<Recipe> at_epoch(const std::string& name, const std::string& help,
                     std::optional<std::int64_t> QatSchedule::*member) {
  return nested<Recipe>(
      name, Table<Recipe>(help, {epoch_key("epoch", "epoch, from 0", member).required()}));
}

Table<BitStage> stage_table() {
  const auto bits = [](const std::string& name, int BitStage::*member) {
    return key(name,
               "bit width of " + name +
                   " in this stage, of those with fewer bits in `quantize`; absent: no change",
               member)
        .within(2, 8);
  };
  return Table<BitStage>(
             "A stage; it begins where the one before ends.",
             {key("until", "first epoch after the stage (epochs count from 0)", &BitStage::until)
                  .required()
                  .within(1, kMaxEpoch),
              bits("weights", &BitStage::weights), bits("activations", &BitStage::activations)})
      .check([](const OptionReader& from, BitStage&) {
        if (from.has("weights") || from.has("activations")) return;
        fail_at(from.place(), "expected 'weights', 'activations' or both in the stage");
      });
}

// "an epoch from 1 to 2", of so many epochs.
std::string epochs_text(std::int64_t first, std::int64_t epochs) {
  if (first < epochs) {
    return "an epoch from " + std::to_string(first) + " to " + std::to_string(epochs - 1);
  }
  return "epoch " + std::to_string(first) +
         " or later, of which train.epochs: " + std::to_string(epochs) +
         " has none (the first is 0)";
}

// Something scheduled for an epoch that never comes would be ignored silently.
void require_epoch(const OptionReader& schedule, std::string_view table, std::string_view key,
                   std::int64_t first, std::int64_t epochs) {
  if (!schedule.has(table) || !schedule.table(table).has(key)) return;
  const std::int64_t epoch = schedule.table(table).integer(key);
  if (epoch < first || epoch >= epochs) {
    fail_at(schedule.table(table).at(key).place, "schedule." + std::string(table) + ": expected " +
                                                     epochs_text(first, epochs) + ", got " +
                                                     std::to_string(epoch));
  }
}

void require_stage_epochs(const OptionReader& schedule, std::int64_t epochs) {
  if (!schedule.has("bits")) return;
  std::int64_t first = 1;
  for (const YamlNode& item : schedule.at("bits").items) {
    const std::int64_t until = OptionReader(item).integer("until");
    if (until < first || until >= epochs) {
      fail_at(OptionReader(item).at("until").place, "schedule.bits: expected " +
                                                        epochs_text(first, epochs) + ", got " +
                                                        std::to_string(until));
    }
    first = until + 1;
  }
}

void require_epochs(const OptionReader& from, const Recipe& recipe) {
  const QatSchedule& schedule = recipe.schedule;
  const std::int64_t epochs = recipe.train.trainer.epochs;
  require_stage_epochs(from, epochs);
  require_epoch(from, "observe", "from", 0, epochs);
  require_epoch(from, "fake_quant", "from", schedule.observe_from, epochs);
  require_epoch(from, "fake_quant", "activations_from", schedule.fake_quant_from, epochs);
  std::int64_t last_change =
      schedule.fake_quant_activations_from.value_or(schedule.fake_quant_from);
  if (!schedule.stages.empty()) last_change = std::max(last_change, schedule.stages.back().until);
  require_epoch(from, "freeze_observers", "epoch", last_change + 1, epochs);
  require_epoch(from, "freeze_bn", "epoch", 0, epochs);
}

// Activations that no group has, or that are dynamic, have no quantizer that a schedule could
// change.
void require_static_activations(const OptionReader& from, const Recipe& recipe) {
  const auto& groups = recipe.quantize->config.groups;
  const bool has_activations =
      std::any_of(groups.begin(), groups.end(),
                  [](const QuantizeGroup& group) { return group.config.activations.has_value(); });
  if (!has_activations && recipe.schedule.fake_quant_activations_from) {
    fail_at(from.table("fake_quant").at("activations_from").place,
            "schedule.fake_quant.activations_from has no effect: no group has activations");
  }
  const bool any = std::any_of(groups.begin(), groups.end(), [](const QuantizeGroup& group) {
    return group.config.activations && group.config.activations->scheme.dynamic;
  });
  if (!any) return;
  const std::string why =
      " with dynamic activations: they have the bits of the recipe and are "
      "quantized when the weights are";
  if (recipe.schedule.fake_quant_activations_from) {
    fail_at(from.table("fake_quant").at("activations_from").place,
            "schedule.fake_quant.activations_from has no effect" + why);
  }
  if (!from.has("bits")) return;
  for (const YamlNode& item : from.at("bits").items) {
    const OptionReader stage(item);
    if (stage.has("activations")) {
      fail_at(stage.at("activations").place, "schedule.bits of activations" + why);
    }
  }
}

// Frozen ranges leave nothing to observe.
void require_observing(const OptionReader& from, const QatSchedule& schedule) {
  if (!schedule.keep_ranges) return;
  const auto reject = [&](const std::string& key) {
    fail_at(from.at(key).place,
            "schedule." + key + " has no effect: calibrate.freeze keeps all ranges");
  };
  if (schedule.observe_from > 0) reject("observe");
  if (!schedule.stages.empty()) reject("bits");
  if (schedule.freeze_observers) reject("freeze_observers");
}

// A stage that widens no quantizer, or none that is on, would be ignored silently.
void require_wider_stages(const OptionReader& from, const Recipe& recipe) {
  if (!from.has("bits")) return;
  const std::int64_t weights_from = recipe.schedule.fake_quant_from;
  const std::int64_t activations_from =
      recipe.schedule.fake_quant_activations_from.value_or(weights_from);
  const auto require = [&](const OptionReader& stage, const std::string& what,
                           std::optional<QuantizerConfig> qat::QConfig::*side, std::int64_t begin) {
    if (!stage.has(what)) return;
    const std::string useless = "schedule.bits: the stage has no effect: ";
    if (stage.integer("until") <= begin) {
      fail_at(stage.place(), useless + "it ends at epoch " + stage.text("until") + ", " + what +
                                 " are quantized from epoch " + std::to_string(begin) + " on");
    }
    const auto& groups = recipe.quantize->config.groups;
    const bool widens = std::any_of(groups.begin(), groups.end(), [&](const QuantizeGroup& group) {
      const std::optional<QuantizerConfig>& quantizer = group.config.*side;
      return quantizer && quantizer->scheme.bits < stage.integer(what);
    });
    if (!widens) fail_at(stage.place(), useless + "no quantizer has fewer bits");
  };
  for (const YamlNode& item : from.at("bits").items) {
    const OptionReader stage(item);
    require(stage, "weights", &qat::QConfig::weights, weights_from);
    require(stage, "activations", &qat::QConfig::activations, activations_from);
  }
}

}  // namespace

Table<Recipe> schedule_table() {
  return Table<Recipe>(
             "Changes that take effect at the start of an epoch. All but `freeze_bn` and "
             "`reestimate_bn` need `quantize`.",
             {nested<Recipe>("observe", Table<Recipe>("when observers start to measure ranges",
                                                      {epoch_key("from", "epoch, from 0",
                                                                 &QatSchedule::observe_from)
                                                           .by_default()}))
                  .by_default("{}")
                  .needs("quantize"),
              nested<Recipe>(
                  "fake_quant",
                  Table<Recipe>("when tensors start to be quantized",
                                {epoch_key("from", "epoch, from 0", &QatSchedule::fake_quant_from)
                                     .by_default(),
                                 epoch_key("activations_from",
                                           "epoch (from 0) from which activations are quantized; "
                                           "absent: when the weights are",
                                           &QatSchedule::fake_quant_activations_from)}))
                  .by_default("{}")
                  .needs("quantize"),
              list_of<BitStage, Recipe>(
                  "bits", "progressive bit widths: stages with more bits than at the end",
                  stage_table(), &Recipe::schedule, &QatSchedule::stages)
                  .items(1)
                  .needs("quantize"),
              at_epoch(
                  "freeze_observers",
                  "when ranges stop changing: later than `fake_quant.from`, "
                  "`fake_quant.activations_from` and the last `until` of `bits`; absent: never",
                  &QatSchedule::freeze_observers)
                  .needs("quantize"),
              at_epoch("freeze_bn", "when batch-norm statistics stop changing; absent: never",
                       &QatSchedule::freeze_batch_norm),
              nested<Recipe>("reestimate_bn",
                             Table<Recipe>("Measures batch-norm statistics again, with the final "
                                           "weights, after the last epoch of training.",
                                           {key("batches", "training batches to measure on",
                                                &Recipe::reestimate_bn)
                                                .required()
                                                .within(1, kMaxCount)}))})
      .check([](const OptionReader& from, Recipe& recipe) { require_epochs(from, recipe); });
}

void check_schedule(const OptionReader& from, const Recipe& recipe) {
  require_observing(from, recipe.schedule);
  if (recipe.quantize) require_static_activations(from, recipe);
  require_wider_stages(from, recipe);
}

}  // namespace steelyard
