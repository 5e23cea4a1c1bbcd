// From a recipe to everything a run needs: data, model, quantization, optimizer, schedules.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/trainer.h"
#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/plan.h"
#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/recipes/models/exported_data.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/runs/records/run_record.h"
#include "steelyard/recipes/schema/recipe.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

// The source of a model's first weights.
enum class InitialWeights {
  kRecipe,  // init.checkpoint where the recipe has it, else random from the seed
  kLater    // the caller restores a checkpoint of this run
};

// The data that is loaded with a trained model.
enum class RunData {
  kNone,  // what its checkpoint says about it
  kTest,  // the test set
  kAll
};

// The float model whose outputs a run without labels learns from, as its checkpoint knows it.
struct KnownTeacher {
  std::map<std::string, std::string> sources = {};  // RunRecord::sources; empty: any
  std::vector<double> units = {};                   // RunRecord::output_units; empty: not yet
  // Its outputs for the training, validation and test samples, where another experiment of the same
  // data has computed them; else undefined.
  std::array<Tensor, 3> outputs = {};
};

// What a checkpoint says about the data that its weights come from. What is absent is chosen as for
// a new run; what is there and empty, the run did without.
struct KnownData {
  std::optional<Normalization> normalization = {};
  std::optional<Normalization> target_normalization = {};
  std::optional<std::vector<std::string>> class_names = {};
  KnownTeacher teacher = {};
};

// The objects of a recipe: data, model, optimizer, callbacks. Throws InputError for whatever does
// not fit: dataset, model, checkpoint, targets, schedule.
class Experiment {
 public:
  // `network`: RunRecord::network of a checkpoint that the weights come from; else `model.onnx` is
  // read. `known`: of that checkpoint; its normalization saves `normalize: dataset` reading all
  // samples again, its names keep the order of an imported model's classes.
  Experiment(Recipe recipe, const Registries& registries, InitialWeights weights,
             const std::string& network = {}, const KnownData& known = {});
  // For a run with a checkpoint, whose weights the caller restores: inputs are normalized as the
  // record says, whatever the dataset now holds. Throws InputError for data of another form than
  // the record's.
  Experiment(Recipe recipe, const Registries& registries, const RunRecord& record, RunData data);

  const Recipe& recipe() const { return recipe_; }
  const InputFormat& input() const { return input_; }
  // What checkpoints say about the run.
  RunRecord record() const;
  // The digest of the training and the validation split (framework/data/dataset_digest.h); with
  // RunData::kTest of no samples, unless data.test sets the test set aside from them.
  const std::string& data_digest() const;
  // Notes for the user, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  Module& model() { return *model_; }
  // The plan of the quantization; nothing for a float run.
  const std::optional<qat::Plan>& plan() const { return plan_; }
  // The graph of an imported model; nothing for others.
  const std::optional<imports::GraphSpec>& network() const { return network_; }
  // As RunRecord has it.
  std::string network_text() const;
  // Whether the network's last activation is left to the loss (imports::GraphSpec::head).
  bool leaves_head() const;
  // The model, or another one of this recipe, as it is deployed: with the activation that the loss
  // contains, or with outputs in the units of the data's targets.
  std::shared_ptr<Module> deployed_model() const { return as_deployed(model_); }
  std::shared_ptr<Module> as_deployed(std::shared_ptr<Module> model) const;
  // The deployed model without that activation.
  std::shared_ptr<Module> model_in_units() const { return in_units(model_); }
  // A line beneath the plan's table, where there is one.
  void add_plan_note(std::string note);
  // A line beneath the plan's table, or for a float run a note for the user.
  void note(std::string text);
  const Dataset& train() const { return train_; }
  const Dataset& validation() const { return validation_; }
  const Dataset& test() const { return test_; }
  const Normalization& normalization() const { return loader_options_.normalization; }
  // For other experiments with this one's weights.
  KnownData known_data() const;
  // The normalization that the targets of train(), validation() and test() have, and the model's
  // outputs; empty where they are as the data has them.
  const Normalization& target_normalization() const { return target_normalization_; }
  // Goes on with that of a checkpoint.
  void normalize_as(const Normalization& normalization);
  const LoaderOptions& loader_options() const { return loader_options_; }
  // With the weights that the recipe asks for, once there is training data.
  const Loss& loss() const { return loss_; }
  TargetKind target_kind() const { return loss_info(loss_).targets; }

  // Throws InputError where the recipe asks for what the device does not do.
  void require_trainable_on(Device device) const;

  // Throws InputError for what earlier versions accepted, whose runs are loaded and go on:
  // schedule.freeze_bn without a batch norm; model.layers that end in the activation that the loss
  // contains, which would be computed twice; learned ranges, which calibrate.freeze keeps.
  void require_new_run() const;

  // Moves the model and the teacher, once it is loaded, to a device, which multiplies as the recipe
  // says from then on; they are built on the CPU.
  // Throws as require_trainable_on().
  void move_to(Device device);
  // Moves the trained model back to the CPU.
  void move_to_cpu();

  std::unique_ptr<Optimizer> make_optimizer();
  // Loads the teacher of a recipe that distills, for training only. Throws InputError when its
  // checkpoint does not fit the float model, or is not the one that the run began with.
  void load_teacher(const Registries& registries);
  // Everything but the run's folder; distillation once the teacher is loaded.
  TrainerOptions trainer_options() const;
  // Null for a float run that freezes nothing.
  std::unique_ptr<TrainerCallback> make_schedule() { return make_schedule(*model_); }
  // The callback that follows the codes of weights; null unless the recipe asks for it. Throws
  // InputError when no layer that is trained has quantized weights.
  std::unique_ptr<TrainerCallback> make_oscillations();
  // The callback that measures batch-norm statistics again at the end; null unless the recipe asks
  // for it.
  std::unique_ptr<TrainerCallback> make_reestimation();
  // The batches of the first epoch, without augmentation: at most batches_per_epoch(). The result
  // must not outlive the experiment.
  std::function<Tensor(std::int64_t)> plain_batches() const;
  // The number of batches to calibrate on where nobody says another one: 32, or all of an epoch.
  std::int64_t default_calibration_batches() const;
  // Lets the observers see the first of plain_batches() (see qat/ptq/calibrate.h), then learns the
  // rounding of weights and corrects biases if the recipe asks for it; if that changed anything,
  // the ranges are measured again.
  void calibrate(std::int64_t batches);
  // The outputs of the deployed model, f32, for those that the model gives.
  Tensor deployed_outputs(const Tensor& outputs) const;
  // What learning became of each layer; empty before, and if it is not asked for.
  const std::vector<qat::LearnedRounding>& rounding() const { return rounding_; }
  // Loss and metrics on the test set, by float32 products, whatever training used; by ranks that
  // share the batches.
  Metrics evaluate_test();
  Metrics evaluate_test(comm::Communicator& ranks);
  Evaluation test_predictions(comm::Communicator& ranks);
  // What `use` gives, which runs the model on the data. A std::out_of_range that it throws of a
  // sample, as of a token that an Embedding's table does not have, becomes an InputError that names
  // the first such sample.
  template <typename Use>
  auto with_samples_named(const Use& use) {
    try {
      return use();
    } catch (const std::out_of_range&) {
      throw_refused_sample();
      throw;
    }
  }
  // Another model of the recipe, with random weights, for trials that change its state.
  std::shared_ptr<Module> make_trial_model(const Registries& registries) const;
  // Where the recipe has the key, else where its table is.
  std::string place(std::string_view table, std::string_view key) const;

 private:
  // Where the recipe is silent, takes what an ONNX file says that Steelyard exported.
  void use_exported_data(const Registries& registries);
  // Notes where data or names are not those that the file was exported with. Throws InputError
  // where its names do not fit its network.
  void compare_exported_data();
  void load_data(const Registries& registries, const KnownData& known);
  void load_test(const Registries& registries, const RunRecord& record);
  // Throws InputError for the first sample of the data that the model refuses, if there is one.
  void throw_refused_sample();
  // With the numbers of init.checkpoint, where its outputs have them, else of the training set.
  Normalization target_normalization_of(const Dataset& train);
  // Where nothing is known of it; completes the recipe.
  void choose_target_normalization(const Registries& registries, const Dataset& train);
  void normalize_all_targets();
  std::shared_ptr<Module> in_units(std::shared_ptr<Module> model) const;
  // {train, validation}. Throws InputError where there are too few samples.
  std::pair<Dataset, Dataset> split_train(const Dataset& train) const;
  void weigh_classes();
  // The float model with the weights that a run of the recipe begins with: those of `known`, where
  // it says which.
  std::shared_ptr<Module> float_start(const Registries& registries, const KnownTeacher& known);
  // Where samples have no labels: what the float model gives for them become the targets.
  void take_float_outputs(const Registries& registries, const KnownTeacher& known);
  // Of each output of the network, the number of its values in a sample.
  std::vector<std::int64_t> output_sizes() const;
  // Where the model ends in a Softmax or Sigmoid and the loss computes one of its outputs.
  void note_activation();
  std::string last_activation() const;
  const YamlNode* last_layer() const;
  // "none" where the loss contains none.
  std::string activation_of_loss() const;
  // A line where a batch asks for more samples than there are.
  void note_small_data();
  // Where the recipe calibrates and leaves the number of batches open.
  void choose_calibration_batches(const Registries& registries);
  Tensor weights_of(const WeightSpec& spec, const char* key, std::vector<double> balanced) const;
  Normalization normalization_of(const Dataset& train,
                                 const std::optional<Normalization>& known) const;
  // Throws InputError unless samples are of the record's form.
  void require_input_of(const RunRecord& record, const Dataset& dataset) const;
  // A line where the model of `source`, a key or a file, was trained with another normalization, or
  // does not say with which.
  void note_unknown_normalization(std::string_view source);
  void note_other_normalization(std::string_view source, const std::string& checkpoint);
  void note_normalization_of(std::string_view source, const Normalization& of_file);
  void note_other_samples(std::string_view source, const std::string& digest,
                          const DatasetNames& names);
  void note_dtype_of(std::string_view source, DType of_file);
  // A file that holds the names of the data that its model was trained on.
  struct NamesSource {
    std::string key;    // of the recipe: "init.checkpoint"
    std::string file;   // what it says
    std::string place;  // of that key
  };
  // Notes where the names differ. Throws InputError instead, if `refuses`, for the same classes or
  // columns of a table in another order, or other categories of the columns.
  void compare_names(const NamesSource& source, const DatasetNames& theirs, bool refuses);
  void compare_names_in(const NamesSource& checkpoint, bool refuses);
  // Adds the plugins whose parts the recipe names to sources_.
  void note_plugins(const Registries& registries);
  void build(const Registries& registries, InitialWeights weights);
  void require_whole_numbers() const;
  // The key of the file that the network is imported from, "model.onnx", and its place.
  std::string file_key() const;
  std::string place_of_file() const;
  // The network of that file: from a checkpoint's text, else from the file.
  void load_network(const std::string& text);
  void load_imported_weights(Module& model);
  void require_outputs_for_targets() const;
  void require_targets_of_network() const;
  void find_frames();  // of texts, for the loss
  void require_vocabulary() const;
  void require_norm_left(std::string_view key) const;
  void require_logits() const;
  void require_learned_ranges() const;
  void require_batches(std::string_view table, std::string_view key, std::int64_t batches) const;
  // Checks that there are as many samples as calibrate asks for; notes what it leaves out.
  void require_calibration_samples();
  void require_samples(const char* key, const std::string& path, std::int64_t samples) const;
  std::function<Tensor(std::int64_t)> plain_batches(std::int64_t samples) const;
  bool starts_trained() const;
  void note_learning();
  // A line where norms are folded before they have seen data.
  void note_untrained_norms(const Registries& registries);
  void require_trainable_last_batch(const Registries& registries);
  // The recipe's float model: with weights of zeros, which are loaded later or not needed, and with
  // the initial ones.
  std::shared_ptr<Module> make_float_model(const Registries& registries) const;
  std::shared_ptr<Module> initial_float_model(const Registries& registries) const;
  // Loads the file that the recipe names there into a float model, and remembers its digest.
  void load_source(const std::string& key, const std::string& checkpoint, const std::string& place,
                   Module& model, const InitSpec& init = {});
  // The model prepared for quantization, where the recipe asks for it.
  std::shared_ptr<Module> prepared(std::shared_ptr<Module> model, const Registries& registries,
                                   std::optional<qat::Plan>& plan) const;
  std::unique_ptr<TrainerCallback> make_schedule(Module& model) const;

  Recipe recipe_;
  Dataset train_, validation_, test_;  // undefined where they were not loaded
  std::array<Tensor, 2> raw_targets_;  // of train_ and validation_, as the data has them
  InputFormat input_;
  mutable std::string data_digest_;  // once it was asked for
  std::vector<std::string> notes_;
  LoaderOptions loader_options_;
  Normalization target_normalization_;
  Loss loss_;
  std::shared_ptr<Module> model_;
  std::optional<qat::Plan> plan_;
  std::vector<qat::LearnedRounding> rounding_;
  std::shared_ptr<Module> teacher_;
  Device device_;
  std::optional<MatmulPrecisionGuard> precision_;  // while the model is on its device
  qat::TrainedParts trained_;
  std::map<std::string, std::string> sources_;  // see RunRecord
  std::vector<double> output_units_;            // likewise
  std::optional<imports::GraphSpec> network_;
  std::optional<ExportedData> exported_;                      // of model.onnx
  std::optional<std::vector<NamedTensor>> imported_weights_;  // until the model has them
};

}  // namespace steelyard
