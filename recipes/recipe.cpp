#include "recipes/recipe.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/files.h"
#include "recipes/overrides.h"
#include "recipes/recipe_options.h"
#include "recipes/scalar.h"

namespace steelyard {
namespace {

std::optional<std::int64_t> integer_of(const OptionReader& from, std::string_view table,
                                       std::string_view key) {
  if (!from.has(table)) return std::nullopt;
  return from.table(table).integer(key);
}

NormalizeSpec read_normalize(const OptionReader& data) {
  const YamlNode& node = data.at("normalize");
  if (node.kind != YamlNode::Kind::kTable) return {.type = node.text};
  const OptionReader from(node);
  NormalizeSpec spec{.type = "given", .mean = from.numbers("mean"), .stddev = from.numbers("std")};
  if (spec.mean.size() != spec.stddev.size()) {
    fail_at(from.at("std").place, "data.normalize.std: expected one for each of the " +
                                      std::to_string(spec.mean.size()) + " means, got " +
                                      std::to_string(spec.stddev.size()));
  }
  return spec;
}

DataSpec read_data(const OptionReader& from) {
  const std::vector<std::string> augment = from.texts("augment");
  const auto has = [&](const char* word) {
    return std::find(augment.begin(), augment.end(), word) != augment.end();
  };
  DataSpec data{.dataset = from.text("dataset"),
                .batch_size = from.integer("batch_size"),
                .random_crop = has("random_crop"),
                .flip = has("flip"),
                .normalize = read_normalize(from),
                .crop_padding = from.integer("crop_padding"),
                .validation = from.integer("validation")};
  if (from.has("path")) data.path = from.text("path");
  return data;
}

ModelSpec read_model(const OptionReader& from) {
  ModelSpec model{.options = from.node()};
  if (from.has("type") == from.has("layers")) {
    fail_at(from.place(), "expected exactly one of 'type' and 'layers' in the model");
  }
  if (from.has("type")) model.type = from.text("type");
  if (from.has("classes")) model.classes = from.integer("classes");
  return model;
}

OptimizerSpec read_optimizer(const OptionReader& from) {
  OptimizerSpec optimizer{.type = from.text("type"),
                          .lr = from.number("lr"),
                          .weight_decay = from.number("weight_decay"),
                          .decay_bias_and_norm = from.boolean("decay_bias_and_norm")};
  if (optimizer.type == "sgd") {
    optimizer.momentum = from.number("momentum");
    optimizer.nesterov = from.boolean("nesterov");
    if (optimizer.nesterov && optimizer.momentum == 0) {
      fail_at(from.at("nesterov").place, "nesterov expected a momentum above 0, got 0");
    }
  } else {
    optimizer.beta1 = from.number("beta1");
    optimizer.beta2 = from.number("beta2");
    optimizer.eps = from.number("eps");
  }
  return optimizer;
}

LrScheduleSpec read_lr_schedule(const OptionReader& from, std::int64_t epochs, double lr) {
  LrScheduleSpec schedule{.type = from.text("type"), .warmup_epochs = from.number("warmup_epochs")};
  if (schedule.warmup_epochs > static_cast<double>(epochs)) {
    fail_at(from.at("warmup_epochs").place, "expected at most the " + std::to_string(epochs) +
                                                " epochs of training, got " +
                                                from.text("warmup_epochs"));
  }
  if (schedule.type == "step") {
    schedule.every_epochs = from.integer("every_epochs");
    schedule.gamma = from.number("gamma");
  }
  if (schedule.type == "cosine") {
    schedule.final_lr = from.number("final_lr");
    if (schedule.final_lr > lr) {
      fail_at(from.at("final_lr").place, "expected at most the learning rate of " +
                                             format_number(lr) + ", got " + from.text("final_lr"));
    }
  }
  return schedule;
}

std::vector<std::string> places_of(const YamlNode& list) {
  std::vector<std::string> places;
  for (const YamlNode& item : list.items) places.push_back(item.place);
  return places;
}

TrainSpec read_train(const OptionReader& from) {
  TrainSpec train{.epochs = from.integer("epochs"),
                  .optimizer = read_optimizer(from.table("optimizer")),
                  .lr_schedule = read_lr_schedule(from.table("lr_schedule"), from.integer("epochs"),
                                                  from.table("optimizer").number("lr")),
                  .loss = from.text("loss"),
                  .huber_delta = from.number("huber_delta"),
                  .label_smoothing = from.number("label_smoothing"),
                  .checkpoint_every_steps = from.integer("checkpoint_every_steps"),
                  .keep_step_checkpoints = from.boolean("keep_step_checkpoints"),
                  .matmul_precision = from.text("matmul_precision"),
                  .cuda_graph = from.text("cuda_graph") == "auto",
                  .tensorboard = from.boolean("tensorboard")};
  if (const double limit = from.number("divergence_limit"); limit > 0) {
    if (limit < 1) {
      fail_at(from.at("divergence_limit").place,
              "divergence_limit expected 0 or a number of at least 1, got " +
                  from.text("divergence_limit"));
    }
    train.divergence_limit = limit;
  }
  if (from.has("clip_grad_norm")) train.clip_grad_norm = from.number("clip_grad_norm");
  if (from.has("distill")) {
    const OptionReader distill = from.table("distill");
    train.distill = {distill.text("checkpoint"), distill.number("weight"),
                     distill.number("temperature")};
    if (train.loss != "cross_entropy") {
      fail_at(distill.place(), "distill needs the loss cross_entropy, got " + train.loss);
    }
  }
  if (from.has("ema")) train.ema = EmaSpec{from.table("ema").number("decay")};
  if (from.has("only")) {
    train.only = from.texts("only");
    train.only_places = places_of(from.at("only"));
  }
  if (train.keep_step_checkpoints && train.checkpoint_every_steps == 0) {
    fail_at(from.at("keep_step_checkpoints").place,
            "keep_step_checkpoints needs checkpoint_every_steps above 0");
  }
  if (train.huber_delta != 1 && train.loss != "huber") {
    fail_at(from.at("huber_delta").place, "huber_delta needs the loss huber");
  }
  if (train.label_smoothing > 0 && train.loss != "cross_entropy") {
    fail_at(from.at("label_smoothing").place, "label_smoothing needs the loss cross_entropy");
  }
  return train;
}

constexpr std::int64_t kDefaultGroupSize = 32;

// Of activations: 8 bits have codes to spare for the outermost values, fewer bits do not.
std::string default_observer(std::int64_t bits) { return bits >= 8 ? "min_max" : "moving_average"; }

std::optional<QuantizerSpec> read_quantizer(const OptionReader& group, std::string_view key) {
  if (!group.has(key)) return std::nullopt;
  const OptionReader from = group.table(key);
  QuantizerSpec quantizer{.num_bits = from.integer("num_bits"),
                          .symmetric = from.boolean("symmetric"),
                          .strategy = from.text("strategy"),
                          .place = from.place()};
  quantizer.observer =
      from.has("observer") ? from.text("observer") : default_observer(quantizer.num_bits);
  const bool groups = quantizer.strategy == "group";
  if (groups) quantizer.group_size = kDefaultGroupSize;
  if (from.has("group_size")) {
    if (!groups) fail_at(from.at("group_size").place, "group_size needs the strategy group");
    quantizer.group_size = from.integer("group_size");
  }
  if (from.has("narrow_range")) quantizer.narrow_range = from.boolean("narrow_range");
  if (from.has("averaging_constant")) {
    quantizer.averaging_constant = from.number("averaging_constant");
  }
  if (from.has("percentile")) quantizer.percentile = from.number("percentile");
  return quantizer;
}

std::optional<CosineSpec> read_cosine(const OptionReader& from, std::string_view key) {
  if (!from.has(key)) return std::nullopt;
  return CosineSpec{from.table(key).number("start"), from.table(key).number("end")};
}

std::optional<OscillationsSpec> read_oscillations(const OptionReader& quantize) {
  if (!quantize.has("oscillations")) return std::nullopt;
  const OptionReader from = quantize.table("oscillations");
  const std::string& bn_fold = quantize.text("bn_fold");
  if (bn_fold != "frozen" && bn_fold != "none") {
    fail_at(from.place(), "oscillations needs bn_fold frozen or none, got " + bn_fold);
  }
  return OscillationsSpec{.momentum = from.number("momentum"),
                          .damping = read_cosine(from, "damping"),
                          .freeze_threshold = read_cosine(from, "freeze_threshold")};
}

QuantizeSpec read_quantize(const OptionReader& from) {
  QuantizeSpec quantize{.ignore = from.texts("ignore"),
                        .ignore_places = places_of(from.at("ignore")),
                        .bn_fold = from.text("bn_fold"),
                        .algorithm_method = from.table("algorithm").text("method"),
                        .oscillations = read_oscillations(from)};
  if (from.table("algorithm").has("scale_lr")) {
    quantize.scale_lr = from.table("algorithm").number("scale_lr");
  }
  for (const YamlNode& item : from.at("groups").items) {
    const OptionReader group(item);
    quantize.groups.push_back({.targets = group.texts("targets"),
                               .target_places = places_of(group.at("targets")),
                               .weights = read_quantizer(group, "weights"),
                               .activations = read_quantizer(group, "activations"),
                               .place = group.place()});
    if (!group.has("weights") && !group.has("activations")) {
      fail_at(group.place(), "expected 'weights', 'activations' or both in the group");
    }
  }
  return quantize;
}

// Something scheduled for an epoch that never comes would be ignored silently.
void require_epoch(const OptionReader& schedule, std::string_view table, std::string_view key,
                   std::int64_t first, std::int64_t epochs) {
  if (!schedule.has(table)) return;
  const YamlNode& node = schedule.table(table).at(key);
  const std::int64_t epoch = schedule.table(table).integer(key);
  if (epoch < first || epoch >= epochs) {
    fail_at(node.place, "schedule." + std::string(table) + " expected an epoch from " +
                            std::to_string(first) + " to " + std::to_string(epochs - 1) + ", got " +
                            std::to_string(epoch));
  }
}

std::vector<BitStageSpec> read_bit_stages(const OptionReader& from, std::int64_t epochs) {
  std::vector<BitStageSpec> stages;
  if (!from.has("bits")) return stages;
  for (const YamlNode& item : from.at("bits").items) {
    const OptionReader stage(item);
    BitStageSpec spec{.until = stage.integer("until")};
    const std::int64_t first = stages.empty() ? 1 : stages.back().until + 1;
    if (spec.until < first || spec.until >= epochs) {
      fail_at(stage.at("until").place,
              "schedule.bits expected an epoch from " + std::to_string(first) + " to " +
                  std::to_string(epochs - 1) + ", got " + std::to_string(spec.until));
    }
    if (stage.has("weights")) spec.weights = stage.integer("weights");
    if (stage.has("activations")) spec.activations = stage.integer("activations");
    if (!spec.weights && !spec.activations) {
      fail_at(stage.place(), "expected 'weights', 'activations' or both in the stage");
    }
    stages.push_back(spec);
  }
  return stages;
}

ScheduleSpec read_schedule(const OptionReader& from, std::int64_t epochs) {
  ScheduleSpec schedule{.observe_from = integer_of(from, "observe", "from").value_or(0),
                        .fake_quant_from = integer_of(from, "fake_quant", "from").value_or(0),
                        .bits = read_bit_stages(from, epochs),
                        .freeze_observers = integer_of(from, "freeze_observers", "epoch"),
                        .freeze_bn = integer_of(from, "freeze_bn", "epoch"),
                        .reestimate_bn = integer_of(from, "reestimate_bn", "batches")};
  require_epoch(from, "observe", "from", 0, epochs);
  require_epoch(from, "fake_quant", "from", schedule.observe_from, epochs);
  std::int64_t last_change = schedule.fake_quant_from;
  if (from.has("fake_quant") && from.table("fake_quant").has("activations_from")) {
    require_epoch(from, "fake_quant", "activations_from", last_change, epochs);
    last_change = from.table("fake_quant").integer("activations_from");
    schedule.fake_quant_activations_from = last_change;
  }
  if (!schedule.bits.empty()) last_change = std::max(last_change, schedule.bits.back().until);
  require_epoch(from, "freeze_observers", "epoch", last_change + 1, epochs);
  require_epoch(from, "freeze_bn", "epoch", 0, epochs);
  return schedule;
}

std::optional<CalibrateSpec> read_calibrate(const OptionReader& from) {
  if (!from.has("calibrate")) return std::nullopt;
  const OptionReader table = from.table("calibrate");
  return CalibrateSpec{table.integer("batches"), table.boolean("freeze")};
}

// Frozen ranges leave nothing to observe.
void require_observing(const Recipe& recipe) {
  if (!recipe.calibrate || !recipe.calibrate->freeze) return;
  const YamlNode& schedule = *recipe.resolved.find("schedule");
  const auto reject = [](const YamlNode& node, const std::string& key) {
    fail_at(node.place,
            "schedule." + key + " is without effect: calibrate.freeze keeps all ranges");
  };
  if (recipe.schedule.observe_from > 0) reject(*schedule.find("observe"), "observe");
  if (!recipe.schedule.bits.empty()) reject(*schedule.find("bits"), "bits");
  if (recipe.schedule.freeze_observers) {
    reject(*schedule.find("freeze_observers"), "freeze_observers");
  }
}

// What is not trained keeps its ranges and its statistics.
void require_known_ranges(const Recipe& recipe) {
  if (recipe.train.only.empty()) return;
  const std::string& place = recipe.resolved.find("train")->find("only")->place;
  if (recipe.quantize && !recipe.calibrate) {
    fail_at(place,
            "train.only with 'quantize' needs 'calibrate': ranges of what is not trained come from "
            "there");
  }
  if (recipe.schedule.reestimate_bn) {
    fail_at(place, "train.only keeps batch norms that schedule.reestimate_bn would change");
  }
}

// A stage that widens no quantizer, or none that is on, would be ignored silently.
void require_wider_stages(const Recipe& recipe) {
  if (recipe.schedule.bits.empty()) return;
  const YamlNode& stages = *recipe.resolved.find("schedule")->find("bits");
  const auto widens = [&](std::optional<std::int64_t> bits,
                          std::optional<QuantizerSpec> QuantizeGroupSpec::*side) {
    if (!bits) return true;
    const auto& groups = recipe.quantize->groups;
    return std::any_of(groups.begin(), groups.end(), [&](const QuantizeGroupSpec& group) {
      return group.*side && (group.*side)->num_bits < *bits;
    });
  };
  const auto require_quantizing = [](const YamlNode& node, std::int64_t until, std::int64_t from,
                                     const std::string& what) {
    if (until > from) return;
    fail_at(node.place, "schedule.bits: the stage is without effect: it ends at epoch " +
                            std::to_string(until) + ", " + what + " are quantized from epoch " +
                            std::to_string(from) + " on");
  };
  const std::int64_t weights_from = recipe.schedule.fake_quant_from;
  const std::int64_t activations_from =
      recipe.schedule.fake_quant_activations_from.value_or(weights_from);
  for (std::size_t i = 0; i < stages.items.size(); ++i) {
    const BitStageSpec& stage = recipe.schedule.bits[i];
    const YamlNode& node = stages.items[i];
    if (stage.weights) require_quantizing(node, stage.until, weights_from, "weights");
    if (stage.activations) require_quantizing(node, stage.until, activations_from, "activations");
    if (!widens(stage.weights, &QuantizeGroupSpec::weights) ||
        !widens(stage.activations, &QuantizeGroupSpec::activations)) {
      fail_at(node.place,
              "schedule.bits: the stage is without effect: no quantizer has fewer bits");
    }
  }
}

// Sums of two products with codes of activations then fit in 16 bits. Weights in groups are
// multiplied as floats.
void reduce_range(QuantizeSpec& quantize) {
  constexpr std::int64_t kMostBits = 7;
  for (QuantizeGroupSpec& group : quantize.groups) {
    if (!group.weights || group.weights->strategy == "group") continue;
    group.weights->num_bits = std::min(group.weights->num_bits, kMostBits);
  }
}

Recipe read_recipe(const OptionReader& from) {
  Recipe recipe{.name = from.text("name"),
                .seed = from.integer("seed"),
                .device = from.text("device"),
                .data = read_data(from.table("data")),
                .model = read_model(from.table("model")),
                .train = read_train(from.table("train")),
                .calibrate = read_calibrate(from),
                .resolved = from.node()};
  if (from.has("init")) recipe.init_checkpoint = from.table("init").text("checkpoint");
  if (from.has("quantize")) recipe.quantize = read_quantize(from.table("quantize"));
  if (from.has("schedule")) {
    recipe.schedule = read_schedule(from.table("schedule"), recipe.train.epochs);
  }
  if (from.has("export")) {
    const OptionReader exports = from.table("export");
    recipe.exports = {exports.texts("formats"), exports.text("profile"),
                      exports.boolean("reduce_range")};
  }
  if (recipe.quantize && recipe.exports.reduce_range) reduce_range(*recipe.quantize);
  require_observing(recipe);
  require_known_ranges(recipe);
  require_wider_stages(recipe);
  return recipe;
}

// What is of use with `quantize` only.
void require_quantize(const YamlNode& document) {
  if (document.find("quantize")) return;
  for (const YamlEntry& entry : document.entries) {
    if (entry.key == "export" || entry.key == "calibrate") {
      fail_at(entry.place, entry.key + " needs 'quantize'");
    }
  }
  const YamlNode* schedule = document.find("schedule");
  if (!schedule) return;
  for (const YamlEntry& entry : schedule->entries) {
    if (entry.key == "observe" || entry.key == "fake_quant" || entry.key == "bits" ||
        entry.key == "freeze_observers") {
      fail_at(entry.place, "schedule." + entry.key + " needs 'quantize'");
    }
  }
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& source,
                    const std::vector<std::string>& overrides, const ModelRegistry& registry) {
  YamlNode document = parse_yaml(text, source);
  for (const std::string& assignment : overrides) apply_override(document, assignment);
  require_quantize(document);
  const bool quantized = document.find("quantize") != nullptr;
  const YamlNode resolved = resolve_options(document, recipe_options(registry, quantized), "");
  return read_recipe(OptionReader(resolved));
}

Recipe load_recipe(const std::string& path_or_preset, const std::vector<std::string>& overrides,
                   const ModelRegistry& registry) {
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) {
    if (preset.name == path_or_preset) {
      return parse_recipe(preset.text, path_or_preset + ".yaml", overrides, registry);
    }
    names.emplace_back(preset.name);
  }
  std::error_code error;
  const bool exists = std::filesystem::exists(path_or_preset, error);
  if (error) throw InputError(printable(path_or_preset) + ": " + error.message());
  if (!exists) {
    throw InputError("no recipe file and no preset " + quote_for_message(path_or_preset) +
                     did_you_mean(path_or_preset, names) + "; presets: " + join(names));
  }
  return parse_recipe(read_file(path_or_preset, kMaxYamlBytes), path_or_preset, overrides,
                      registry);
}

std::string resolved_yaml(const Recipe& recipe) { return to_yaml(recipe.resolved); }

}  // namespace steelyard
