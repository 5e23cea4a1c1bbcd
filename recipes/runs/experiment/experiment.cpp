#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/layers/init.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/matmul_precision_words.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/qat/blocks/block_layers.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/ptq/equalize.h"
#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/runs/fused_layers.h"
#include "steelyard/recipes/runs/initial_weights.h"
#include "steelyard/recipes/runs/prepared_model.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kInitStream = std::uint64_t{0x1A17} << 48;

// Where a mean for each position of sequences [C, L] stands in for one of each channel.
std::optional<std::string> note_of_positions(const imports::GraphSpec& network,
                                             const Normalization& normalization) {
  const Shape& sample = network.sample;
  if (sample.size() != 2 || normalization == Normalization{}) return std::nullopt;
  const bool channels_first =
      std::any_of(network.nodes.begin(), network.nodes.end(), [&](const imports::NodeSpec& node) {
        const auto channels = node.options.find("in_channels");
        return node.type == "Conv1d" && channels != node.options.end() &&
               channels->second == OptionValue(sample[0]);
      });
  if (!channels_first || sample[0] == sample[1]) return std::nullopt;
  return "data.normalize has a mean and deviation for each of the " + std::to_string(sample[1]) +
         " positions of sequences " + shape_string(sample) +
         " ([channels, length]), not for each channel: for that, normalize the values in the files "
         "and set data.normalize: none";
}

}  // namespace

Experiment::Experiment(Recipe recipe, const Registries& registries, InitialWeights weights,
                       const std::string& network, const KnownData& known)
    : recipe_(std::move(recipe)),
      loader_options_(recipe_.data.loader),
      loss_(recipe_.train.trainer.loss) {
  if (weights == InitialWeights::kRecipe && network.empty()) use_exported_data(registries);
  KnownData of_file;  // names keep the order of its classes
  if (exported_ && !exported_->class_names.empty()) of_file.class_names = exported_->class_names;
  load_data(registries, exported_ && !known.normalization ? of_file : known);
  release_cached_memory();  // the training set before it was split
  load_network(network);
  note_activation();
  if (exported_) compare_exported_data();
  if (network_ && !exported_) {
    if (auto note = note_of_positions(*network_, normalization()))
      notes_.push_back(std::move(*note));
  }
  take_float_outputs(registries, known.teacher);
  build(registries, weights);
}

std::string Experiment::place(std::string_view table, std::string_view key) const {
  const YamlNode* node = recipe_.resolved.find(table);
  if (node == nullptr) return recipe_.resolved.place;
  const YamlNode* value = node->find(key);
  return value != nullptr ? value->place : node->place;
}

void Experiment::add_plan_note(std::string note) {
  if (plan_) plan_->notes.push_back(std::move(note));
}

void Experiment::note(std::string text) {
  (plan_ ? plan_->notes : notes_).push_back(std::move(text));
}

Experiment::Experiment(Recipe recipe, const Registries& registries, const RunRecord& record,
                       RunData data)
    : recipe_(std::move(recipe)),
      input_(record.input),
      loader_options_(recipe_.data.loader),
      target_normalization_(record.target_normalization),
      loss_(recipe_.train.trainer.loss) {
  if (data == RunData::kAll) {
    load_data(registries,
              {record.normalization, record.target_normalization, record.input.names.classes});
    release_cached_memory();
    require_input_of(record, train_);
  } else {
    if (data == RunData::kTest) load_test(registries, record);
  }
  normalize_as(record.normalization);
  loss_.characters = input_.classes;
  load_network(record.network);
  take_float_outputs(registries, {record.sources, record.output_units});
  build(registries, InitialWeights::kLater);
}

void Experiment::note_plugins(const Registries& registries) {
  for (const OwnPart& part : recipe_.needs) {
    for (const LoadedPlugin& plugin : registries.plugins) {
      if (plugin.name != part.plugin) continue;
      sources_[std::string(kPluginSource) + plugin.name] = plugin.sha256;
    }
  }
}

RunRecord Experiment::record() const {
  return {input_,   normalization(), data_digest(),         essential_recipe(recipe_),
          sources_, network_text(),  target_normalization_, output_units_};
}

void Experiment::build(const Registries& registries, InitialWeights weights) {
  note_plugins(registries);
  require_outputs_for_targets();
  require_targets_of_network();
  find_frames();
  require_vocabulary();
  const TrainSpec& train = recipe_.train;
  if (!train.only.empty()) {
    trained_ = {*make_float_model(registries), train.only, train.only_places, "train.only"};
  }
  require_stages(recipe_, registries, [&] { return make_float_model(registries); });
  require_trainable_last_batch(registries);
  const bool loads = weights == InitialWeights::kRecipe;
  model_ = loads ? initial_float_model(registries) : make_float_model(registries);
  if (loads && recipe_.init_checkpoint) {
    load_source("init.checkpoint", *recipe_.init_checkpoint, place("init", "checkpoint"), *model_,
                recipe_.init);
  } else if (loads && network_) {
    load_imported_weights(*model_);
  }
  imported_weights_.reset();
  std::optional<std::size_t> equalized;
  if (loads && recipe_.equalize) equalized = qat::equalize(model_, registries.own_forms).size();
  model_ = prepared(model_, registries, plan_);
  if (loads && recipe_.model.gguf && !recipe_.exports.target) {
    notes_.push_back(
        "model.gguf: the model is trained in float, and can be exported by a run with "
        "export.target that begins with its weights (init.checkpoint)");
  }
  if (loads && recipe_.exports.target) {
    if (kind_of(InputFile(*recipe_.model.gguf)) == kSafetensorsKind) {
      fail_at(
          place("model", "gguf"),
          "model.gguf: export.target needs the GGUF file, whose metadata and vocabulary the new "
          "one has, got a checkpoint: init.checkpoint begins with its weights");
    }
    notes_.push_back("export.target: " + word_of(*recipe_.exports.target) + ": the weights of " +
                     std::to_string(qat::block_weights(*model_).size()) +
                     " layers are its blocks in every pass, their inputs blocks of q8_0");
  }
  if (loads && !recipe_.init_checkpoint && !network_) note_untrained_norms(registries);
  if (equalized) {
    add_plan_note("calibrate.equalize: " + std::to_string(*equalized) + " pairs of layers");
  }
  if (plan_ && recipe_.model.huggingface) {
    if (auto note = note_of_fused_layers(*plan_)) add_plan_note(std::move(*note));
  }
  note_learning();
  if (qat::freeze_rest(*model_, trained_) == 0) {
    if (train.only.empty()) fail_at(place("model", ""), "model: it has no weights to train");
    fail_at(place("train", "only"),
            "train.only: no module is left to train (quantize.bn_fold: frozen drops batch norms)");
  }
  if (recipe_.reestimate_bn) {
    require_norm_left("reestimate_bn");
    require_batches("schedule", "reestimate_bn", *recipe_.reestimate_bn);
  }
  if (const auto& batches = recipe_.calibrate_batches) {
    require_batches("calibrate", "batches", *batches);
    require_calibration_samples();
  }
}

void Experiment::require_trainable_on(Device device) const {
  const kernels::MatmulPrecision precision = recipe_.train.matmul_precision;
  if (device.kind == Device::Kind::kCuda || precision != kernels::MatmulPrecision::kTf32) return;
  fail_at(place("train", "matmul_precision"),
          "train.matmul_precision: tf32 needs a CUDA device, this run is on the CPU");
}

void Experiment::require_new_run() const {
  if (recipe_.schedule.freeze_batch_norm) require_norm_left("freeze_bn");
  require_logits();
  require_learned_ranges();
}

void Experiment::require_learned_ranges() const {
  if (!recipe_.schedule.keep_ranges || !recipe_.quantize ||
      recipe_.quantize->algorithm == qat::Learning::kNothing) {
    return;
  }
  fail_at(place("quantize", "algorithm"),
          "quantize.algorithm: " + word_of(recipe_.quantize->algorithm) +
              " learns ranges, which calibrate.freeze keeps: expected one of the two");
}

void Experiment::move_to(Device device) {
  require_trainable_on(device);
  precision_.reset();
  precision_.emplace(device, word_of(recipe_.train.matmul_precision));
  steelyard::move_to(*model_, device);
  if (teacher_) steelyard::move_to(*teacher_, device);
  device_ = device;
}

void Experiment::move_to_cpu() {
  steelyard::move_to(*model_, Device{});
  precision_.reset();
  device_ = {};
}

std::shared_ptr<Module> Experiment::make_float_model(const Registries& registries) const {
  const WeightsLater later;
  return initial_float_model(registries);
}

std::shared_ptr<Module> Experiment::initial_float_model(const Registries& registries) const {
  // The outputs of texts are those of all frames, which the recipe says.
  // Tokens are numbers of a vocabulary, which the model has.
  const bool of_model = target_kind() == TargetKind::kText || target_kind() == TargetKind::kTokens;
  const std::int64_t outputs = of_model ? 0 : input_.classes;
  if (network_) {
    return build_imported_model(*network_, recipe_.model, {input_.sample, input_.names.inputs},
                                outputs, !leaves_head());
  }
  Rng rng(static_cast<std::uint64_t>(recipe_.seed), kInitStream);
  return build_model(recipe_.model, LayerInput{input_.sample, input_.names.inputs}, outputs, rng,
                     registries.models);
}

void Experiment::load_teacher(const Registries& registries) {
  if (recipe_.train.teaches_itself) {
    teacher_ = float_start(registries, {});
    return;
  }
  const auto& checkpoint = recipe_.train.teacher_checkpoint;
  if (!checkpoint) return;
  teacher_ = make_float_model(registries);
  load_source(kTeacherSource, *checkpoint,
              recipe_.resolved.find("train")->find("distill")->find("checkpoint")->place,
              *teacher_);
}

void Experiment::load_source(const std::string& key, const std::string& checkpoint,
                             const std::string& place, Module& model, const InitSpec& init) {
  const WeightsFile file =
      at_place(place, [&] { return load_initial_weights(model, checkpoint, init); });
  sources_[key] = model_digest(file.tensors);
  if (!file.entry.empty()) {
    notes_.push_back(key + ": the tensors are those of the file's entry '" + file.entry + "'");
  }
  note_other_normalization(key, checkpoint);
  compare_names_in({key, checkpoint, place}, /*refuses=*/init.skip.empty());
}

std::shared_ptr<Module> Experiment::prepared(std::shared_ptr<Module> model,
                                             const Registries& registries,
                                             std::optional<qat::Plan>& plan) const {
  if (recipe_.exports.target) {
    try {
      plan = qat::use_blocks(*model, recipe_.exports.blocks);
    } catch (const std::invalid_argument& error) {
      fail_at(place("export", "target"), std::string("export.target: ") + error.what());
    }
  }
  if (!recipe_.quantize) return model;
  qat::PreparedModel result = prepared_model(std::move(model), recipe_, registries);
  qat::set_fault_errors(*result.model, false);  // runs look themselves, and say at which step
  plan = std::move(result.plan);
  return result.model;
}

// Without this check, a key that freezes or measures nothing would be ignored silently.
void Experiment::require_norm_left(std::string_view key) const {
  if (qat::count_batch_norms(*model_) > 0) return;
  fail_at(place("schedule", key), "schedule." + std::string(key) +
                                      ": the model has no batch norm left (quantize.bn_fold: "
                                      "frozen drops those that it folds)");
}

// Checks that an epoch has so many batches.
void Experiment::require_batches(std::string_view table, std::string_view key,
                                 std::int64_t batches) const {
  if (train_.size() == 0) return;  // a trained model
  const std::int64_t available = batches_per_epoch(train_, loader_options_);
  if (batches <= available) return;
  const std::string path = std::string(table) + "." + std::string(key);
  fail_at(place(table, key), path + (key == "batches" ? "" : ".batches") +
                                 ": expected at most the " + std::to_string(available) +
                                 " batches of an epoch, got " + std::to_string(batches));
}

// A batch norm that sees one value per channel has no variance. Tried on a model that is thrown
// away: forward passes in training move batch statistics and observers.
void Experiment::require_trainable_last_batch(const Registries& registries) {
  if (train_.size() == 0) return;  // a trained model
  const std::int64_t batch = recipe_.data.loader.batch_size, shards = recipe_.train.trainer.shards;
  const std::int64_t last = train_.size() % batch;
  const auto has_one = [&](std::int64_t rows) { return rows > 0 && rows < 2 * shards; };
  if (!has_one(last) && !has_one(batch)) return;
  const NoGradGuard no_grad;
  const std::shared_ptr<Module> model = make_trial_model(registries);
  const Shape one = input_.batch(1);
  if (recipe_.calibrate_batches) {
    qat::calibrate(*model, 1, [&](std::int64_t) { return Tensor::zeros(one); });
  }
  if (const auto schedule = make_schedule(*model)) schedule->on_epoch_begin(0);
  Rng rng(0);
  ForwardContext context{.training = true, .rng = &rng};
  try {
    (*model)(Variable(Tensor::zeros(one)), context);
  } catch (const std::invalid_argument& error) {
    const std::string where = shards > 1       ? "a shard of a batch"
                              : has_one(batch) ? "each batch"
                                               : "the last batch";
    fail_at(place("data", "batch_size"), "data.batch_size: " + std::to_string(batch) +
                                             " leaves 1 of " + std::to_string(train_.size()) +
                                             " training samples for " + where + ", on which " +
                                             "the model cannot train: " + error.what());
  }
}

void Experiment::note_untrained_norms(const Registries& registries) {
  if (!recipe_.quantize || recipe_.quantize->config.bn_fold != qat::BatchNormFold::kFrozen) return;
  const std::int64_t folded =
      qat::count_batch_norms(*make_float_model(registries)) - qat::count_batch_norms(*model_);
  if (folded == 0) return;
  add_plan_note("quantize.bn_fold: frozen drops " + std::to_string(folded) + " batch norm" +
                (folded == 1 ? ", which has" : "s, which have") +
                " seen no data: the weights are random, without init.checkpoint, and training may "
                "diverge or stall; bn_fold: none keeps the norms");
}

std::shared_ptr<Module> Experiment::make_trial_model(const Registries& registries) const {
  std::optional<qat::Plan> plan;
  return prepared(make_float_model(registries), registries, plan);
}

Metrics Experiment::evaluate_test() {
  comm::Communicator alone;
  return evaluate_test(alone);
}

Metrics Experiment::evaluate_test(comm::Communicator& ranks) {
  return test_predictions(ranks).metrics;
}

void Experiment::throw_refused_sample() {
  for (const Dataset* dataset : {&train_, &validation_, &test_}) {
    if (dataset->size() == 0) continue;
    const std::string refusal =
        first_refused(*model_, *dataset, normalization(), loader_options_.batch_size);
    if (refusal.empty()) continue;
    const bool changed = normalization() != Normalization{};
    throw InputError(refusal + (changed ? "; data.normalize changed the numbers: none leaves them "
                                          "as they are"
                                        : ""));
  }
}

Evaluation Experiment::test_predictions(comm::Communicator& ranks) {
  const MatmulPrecisionGuard as_eval_does(device_, "float32");
  Evaluation evaluation = with_samples_named([&] {
    return evaluate_predictions(*model_, test_, normalization(), loss(),
                                recipe_.data.loader.batch_size, ranks);
  });
  const auto own = qat::take_fault(qat::named_quantizers(*model_));
  for (const std::string& fault : ranks.gather(own.value_or(""))) {
    if (!fault.empty()) throw TrainingDiverged("evaluation: " + fault);
  }
  return evaluation;
}

}  // namespace steelyard
