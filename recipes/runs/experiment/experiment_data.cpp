// What an experiment makes of its data: splits, normalization, targets that fit, weights of
// classes.
#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>  // IWYU pragma: keep

#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/data_notes.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/recipes/runs/recipe_data.h"
#include "steelyard/recipes/runs/unused_keys.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard {
namespace {

// Not the run's seed: a model that is fine-tuned with another seed has not seen the images that
// choose its `best`.
constexpr std::uint64_t kSplitSeed = 1;

// A key that an exported file gives a recipe.
struct ExportedKey {
  const char* section;
  const char* key;
  std::string value;  // YAML
  const char* metadata;
};

std::string transforms_text(const ImageTransforms& transforms) {
  return deploy::transforms_json(transforms).dump();
}

const char* loss_of(TargetKind target) {
  switch (target) {
    case TargetKind::kMarks:
      return "binary_cross_entropy";
    case TargetKind::kText:
      return "ctc";
    case TargetKind::kTokens:
      return "token_cross_entropy";
    case TargetKind::kValues:
      return "mse";
    case TargetKind::kClass:
      break;
  }
  return "cross_entropy";
}

std::vector<ExportedKey> keys_of(const ExportedData& exported) {
  const auto& [dtype, normalization, transforms, table] = exported.preprocessing;
  std::vector<ExportedKey> keys{
      {"data", "normalize", normalize_text(normalization), "preprocessing"}};
  if (transforms)
    keys.push_back({"data", "transforms", transforms_text(*transforms), "preprocessing"});
  if (exported.target != TargetKind::kClass) {
    keys.push_back({"train", "loss", loss_of(exported.target), "target"});
  }
  return keys;
}

// Whether the same columns of two tables give other features.
bool give_other_features(const std::vector<TableColumn>& a, const std::vector<TableColumn>& b) {
  const auto same_name = [](const TableColumn& x, const TableColumn& y) {
    return x.name == y.name;
  };
  const auto same_features = [](const TableColumn& x, const TableColumn& y) {
    return x.name == y.name && x.categories == y.categories;
  };
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end(), same_name) &&
         !std::equal(a.begin(), a.end(), b.begin(), b.end(), same_features);
}

}  // namespace

void Experiment::use_exported_data(const Registries& registries) {
  if (!recipe_.model.onnx) return;
  const std::string& file = *recipe_.model.onnx;
  try {
    exported_ = exported_data_in(file);
  } catch (const InputError& error) {
    fail_at(place("model", "onnx"), std::string("model.onnx: ") + error.what());
  }
  if (!exported_) return;
  YamlNode document = recipe_.given;
  const std::size_t notes = notes_.size();
  for (const auto& [section, key, value, metadata] : keys_of(*exported_)) {
    YamlNode* table = document.find(section);
    if (table == nullptr || table->find(key) != nullptr) continue;
    set_entry(*table, key, parse_yaml_at(value, printable(file) + ": metadata '" + metadata + "'"));
    notes_.push_back(std::string(section) + "." + key + " is that of " + printable(file) + ": " +
                     value);
  }
  if (notes_.size() == notes) return;
  recipe_ = read_recipe(std::move(document), registries);
  loader_options_ = recipe_.data.loader;
  loss_ = recipe_.train.trainer.loss;
}

void Experiment::compare_exported_data() {
  const deploy::Preprocessing& theirs = exported_->preprocessing;
  const std::vector<std::string>& names = exported_->class_names;
  const std::string file = printable(*recipe_.model.onnx);
  const std::string metadata = file + ": metadata ";
  const std::int64_t outputs = shape_size(network_->output_sample);
  const std::int64_t frames =
      exported_->target == TargetKind::kText && !names.empty() ? outputs / std::ssize(names) : 1;
  if (!names.empty() && std::ssize(names) * frames != outputs) {
    fail_at(place("model", "onnx"), "model.onnx: " + metadata + "'class_names': expected " +
                                        std::to_string(outputs) + " names, got " +
                                        std::to_string(names.size()));
  }
  const bool follows_outputs = loss().type == Loss::Type::kFidelity;  // whatever they are
  if (exported_->target != target_kind() && !follows_outputs) {
    fail_at(place("train", "loss"), "train.loss: " + metadata + "'target': the outputs are " +
                                        word_of(exported_->target) + ", the loss " +
                                        loss_name(loss()) + " is of " + word_of(target_kind()));
  }
  note_normalization_of(file, theirs.normalization);
  note_dtype_of(file, theirs.dtype);
  const auto& own = recipe_.data.transforms;
  const std::string expected = theirs.transforms ? transforms_text(*theirs.transforms) : "none";
  if (expected != (own ? transforms_text(*own) : "none")) {
    notes_.push_back(file + " was trained with data.transforms: " + expected +
                     ", this run has others");
  }
  DatasetNames trained_on;
  trained_on.classes = names;
  if (theirs.table) trained_on.columns = theirs.table->columns;
  compare_names({"model.onnx", *recipe_.model.onnx, place("model", "onnx")}, trained_on,
                /*refuses=*/true);
}

void Experiment::normalize_as(const Normalization& normalization) {
  loader_options_.normalization = normalization;
}

Normalization Experiment::normalization_of(const Dataset& train,
                                           const std::optional<Normalization>& known) const {
  const NormalizeSpec& spec = recipe_.data.normalize;
  if (spec.type == Normalize::kNone) return {};
  const auto channels = static_cast<std::size_t>(train.sample_shape().back());
  if (spec.type == Normalize::kDataset) {
    return known && known->mean.size() == channels ? *known : compute_normalization(train);
  }
  if (spec.mean.size() != channels) {
    fail_at(place("data", "normalize"), "data.normalize: expected the mean and deviation of " +
                                            std::to_string(channels) + " channels, got " +
                                            std::to_string(spec.mean.size()));
  }
  return {{spec.mean.begin(), spec.mean.end()}, {spec.stddev.begin(), spec.stddev.end()}};
}

void Experiment::require_input_of(const RunRecord& record, const Dataset& dataset) const {
  InputFormat found = input_format(dataset);
  // Tokens are numbers of the model's vocabulary, not all of which a text has.
  if (target_kind() == TargetKind::kTokens) found.classes = record.input.classes;
  if (found == record.input) return;
  fail_at(place("data", recipe_.data.path ? "path" : "dataset"),
          "the checkpoint was trained on " + to_string(record.input) + ", the dataset has " +
              to_string(found) + difference_of_names(record.input.names, found.names));
}

std::pair<Dataset, Dataset> Experiment::split_train(const Dataset& train) const {
  const std::int64_t validation = recipe_.data.validation_samples(train.size());
  if (validation >= train.size()) {
    fail_at(place("data", "validation"),
            "data.validation: expected fewer than the " + std::to_string(train.size()) +
                " training samples, got " + std::to_string(validation));
  }
  const bool stratified = recipe_.data.stratified;
  if (stratified) at_place(place("data", "stratified"), [&] { require_strata(train); });
  return split_validation(train, validation, kSplitSeed, stratified);
}

void Experiment::load_test(const Registries& registries, const RunRecord& record) {
  DatasetSplits splits =
      load_splits(recipe_, registries.datasets, DatasetParts::kTest, &record.input);
  if (recipe_.data.test) {  // with other samples, another test set would be set aside
    const auto [train, validation] = split_train(splits.train);
    data_digest_ = digest_of(std::array{train, validation});
  }
  test_ = std::move(splits.test);
  // The training set may have more classes than the test set; marks have a column for each.
  if (test_.classes > 0 && target_kind() != TargetKind::kMarks) {
    test_.classes = std::max(test_.classes, record.input.classes);
  }
  require_input_of(record, test_);
  normalize_all_targets();
}

void Experiment::load_data(const Registries& registries, const KnownData& known) {
  const DataSpec& data = recipe_.data;
  // A run that is continued has them in its checkpoint, should their file be gone.
  const bool are_known =
      data.class_names ? !path_exists(*data.class_names) : recipe_.model.file().has_value();
  const bool without_names = known.class_names && known.class_names->empty();
  DatasetSplits splits = load_splits(recipe_, registries.datasets, DatasetParts::kAll, nullptr,
                                     are_known || without_names ? known.class_names : std::nullopt);
  std::move(splits.notes.begin(), splits.notes.end(), std::back_inserter(notes_));
  loader_options_.normalization = normalization_of(splits.train, known.normalization);
  input_ = input_format(splits.train);
  loss_.characters = input_.classes;
  const bool layout = !recipe_.model.file();  // a network says itself what it takes
  for (std::string& note : notes_of_samples(splits.train, layout)) {
    notes_.push_back(std::move(note));
  }
  if (data.normalize.type == Normalize::kDataset && !known.normalization) {
    if (auto note = note_of_constant(splits.train, loader_options_.normalization)) {
      notes_.push_back(std::move(*note));
    }
  }
  if (layout) {
    if (auto note = note_of_images(recipe_.model, input_)) notes_.push_back(std::move(*note));
  }
  at_place(place("train", "loss"), [&] { validate_loss(loss(), splits.train); });
  if (known.target_normalization) {
    target_normalization_ = *known.target_normalization;
  } else {
    choose_target_normalization(registries, splits.train);
  }
  test_ = splits.test;
  std::tie(train_, validation_) = split_train(splits.train);
  normalize_all_targets();
  at_place(place("data", "augment"), [&] { validate_options(train_, loader_options_); });
  weigh_classes();
  note_small_data();
  for (std::string& note : notes_of_unused_keys(recipe_, !input_.names.columns.empty(),
                                                batches_per_epoch(train_, loader_options_))) {
    notes_.push_back(std::move(note));
  }
  choose_calibration_batches(registries);
}

void Experiment::note_small_data() {
  const std::int64_t batch = recipe_.data.loader.batch_size;
  if (batch <= train_.size()) return;
  notes_.push_back("data.batch_size: " + std::to_string(batch) + " is more than the " +
                   std::to_string(train_.size()) +
                   " training samples: they are one batch, an epoch is one step");
}

Tensor Experiment::weights_of(const WeightSpec& spec, const char* key,
                              std::vector<double> balanced) const {
  const std::vector<double>& values = spec.balanced ? balanced : spec.values;
  const bool one_for_all = loss_.type == Loss::Type::kBinaryCrossEntropy && values.size() == 1;
  if (!one_for_all && std::ssize(values) != input_.classes) {
    fail_at(place("train", key), std::string("train.") + key + ": expected one for each of the " +
                                     std::to_string(input_.classes) + " classes, got " +
                                     std::to_string(values.size()));
  }
  return Tensor::from(values, {std::ssize(values)});
}

void Experiment::weigh_classes() {
  const TrainSpec& train = recipe_.train;
  if (train.class_weights.given()) {
    loss_.class_weights =
        weights_of(train.class_weights, "class_weights", balanced_class_weights(train_));
  }
  if (train.positive_weights.given()) {
    loss_.positive_weights =
        weights_of(train.positive_weights, "positive_weights", balanced_positive_weights(train_));
  }
}

void Experiment::note_unknown_normalization(std::string_view source) {
  if (recipe_.data.normalize.type != Normalize::kDataset) return;
  notes_.push_back(std::string(source) +
                   " does not say how its inputs were normalized: they get the dataset's mean and "
                   "deviation; data.normalize says what the model was trained with");
}

void Experiment::note_other_normalization(std::string_view source, const std::string& checkpoint) {
  if (kind_of(InputFile(checkpoint)) != kSafetensorsKind) return note_unknown_normalization(source);
  const TensorFileMetadata metadata = SafetensorsReader(checkpoint).header().metadata;
  if (const auto of_file = normalization_in(metadata, checkpoint)) {
    note_normalization_of(source, *of_file);
  }
  if (const auto dtype = input_dtype_in(metadata, checkpoint)) note_dtype_of(source, *dtype);
  if (const auto digest = data_digest_in(metadata, checkpoint)) {
    note_other_samples(source, *digest, dataset_names_in(metadata, checkpoint));
  }
}

// Where the test set is set aside from data of the same kind, other samples may be aside than those
// that were when the weights were trained.
void Experiment::note_other_samples(std::string_view source, const std::string& digest,
                                    const DatasetNames& names) {
  if (!recipe_.data.test || digest == data_digest() || names != input_.names) return;
  notes_.push_back(std::string(source) +
                   " was trained on other samples, or with others set aside: if they are of these "
                   "data, data.test and the validation samples may be among them, and results on "
                   "them too good (the same data, data.test, data.validation and data.stratified "
                   "set the same aside)");
}

void Experiment::note_dtype_of(std::string_view source, DType of_file) {
  if (of_file == input_.dtype) return;
  notes_.push_back(std::string(source) + " was trained on samples of " +
                   std::string(dtype_name(of_file)) + ", the data has " +
                   std::string(dtype_name(input_.dtype)) + "; only u8 is divided by 255");
}

void Experiment::note_normalization_of(std::string_view source, const Normalization& of_file) {
  if (of_file == normalization()) return;
  notes_.push_back(std::string(source) + " was trained with data.normalize: " +
                   normalize_text(of_file) + ", this run has " + normalize_text(normalization()));
}

void Experiment::compare_names_in(const NamesSource& checkpoint, bool refuses) {
  const std::string& file = checkpoint.file;
  if (kind_of(InputFile(file)) != kSafetensorsKind) return;
  compare_names(checkpoint, dataset_names_in(SafetensorsReader(file).header().metadata, file),
                refuses);
}

void Experiment::compare_names(const NamesSource& source, const DatasetNames& theirs,
                               bool refuses) {
  const DatasetNames& own = input_.names;
  const auto compare = [&](const DatasetNames& before, const DatasetNames& now, bool swapped,
                           const std::string& what, const std::string& how,
                           const std::string& advice) {
    if (before == now) return;
    const std::string difference = difference_of_names(before, now);
    if (swapped && refuses) {
      fail_at(source.place, source.key + ": " + printable(source.file) + " has the " + what + how +
                                difference + advice);
    }
    notes_.push_back(source.key + " was trained on other " + what + difference);
  };
  if (!theirs.classes.empty() && !own.classes.empty()) {
    compare({.classes = theirs.classes}, {.classes = own.classes},
            std::is_permutation(theirs.classes.begin(), theirs.classes.end(), own.classes.begin(),
                                own.classes.end()),
            "classes", " in another order", ": data.class_names lists them in the file's order");
  }
  if (!theirs.columns.empty() && !own.columns.empty()) {
    compare({.columns = theirs.columns}, {.columns = own.columns},
            give_other_features(theirs.columns, own.columns), "columns",
            " in another order or with other categories", "");
  }
}

// Regression: the model gives [N, model.classes] (classes are checked by build_model()).
void Experiment::require_outputs_for_targets() const {
  if (train_.size() == 0 || input_.classes != 0 || !recipe_.model.classes || network_) return;
  const Shape expected{train_.size(), *recipe_.model.classes};
  if (train_.targets.shape() != expected) {
    fail_at(place("model", "classes"), "the loss " + loss_name(loss()) +
                                           " needs targets of the model's outputs " +
                                           shape_string(expected) + ", the dataset has " +
                                           shape_string(train_.targets.shape()));
  }
}

// Values for an imported network: each loss compares them with its outputs as they lie.
void Experiment::require_targets_of_network() const {
  if (train_.size() == 0 || !network_ || target_kind() != TargetKind::kValues) return;
  const Shape& output = network_->output_sample;
  Shape expected{train_.size()};
  expected.insert(expected.end(), output.begin(), output.end());
  const Shape& found = train_.targets.shape();
  const bool several = !network_->output_parts.empty();
  const std::string parts = several ? " (" + imports::outputs_text(*network_) + ")" : "";
  if (several && !target_normalization_.mean.empty()) {
    fail_at(place("data", "normalize_targets"),
            "data.normalize_targets: expected false, the network has several outputs" + parts);
  }
  if (found == expected) return;
  const bool turned = output.size() == 3 && !network_->output.channels_last;
  fail_at(place("data", recipe_.data.path ? "path" : "dataset"),
          "the loss " + loss_name(loss()) + " needs targets of the network's outputs " +
              shape_string(expected) + parts +
              (turned ? ", in the order height, width, channels (the file's is channels, height, "
                        "width)"
                      : "") +
              ", the dataset has " + shape_string(found));
}

// Tokens: numbers of the network's vocabulary.
void Experiment::require_vocabulary() const {
  if (target_kind() != TargetKind::kTokens || !network_) return;
  const Shape& output = network_->output_sample;
  if (output.size() == 2 && output[1] >= input_.classes) return;
  fail_at(place("data", recipe_.data.path ? "path" : "dataset"),
          "the data has tokens up to " + std::to_string(input_.classes - 1) +
              ", the network has outputs " + shape_string(output) +
              ": expected [length, vocabulary] with a larger vocabulary");
}

// Texts: the model gives [N, characters * frames], or [N, frames, characters] where it was
// imported.
void Experiment::find_frames() {
  if (target_kind() != TargetKind::kText) return;
  const std::int64_t characters = input_.classes;
  if (network_) {
    const Shape& output = network_->output_sample;
    const bool fits = output.size() == 2 ? output[1] == characters
                                         : output.size() == 1 && output[0] % characters == 0;
    loss_.frames = output.empty() ? 0 : output.size() == 2 ? output[0] : output[0] / characters;
    if (fits) return;
    fail_at(place_of_file(),
            file_key() + ": the loss " + loss_name(loss()) + " needs outputs of the " +
                std::to_string(characters) +
                " characters of the data (the blank included) in every frame, the network has "
                "outputs " +
                shape_string(output) + ": data.class_names can list all characters");
  }
  const std::int64_t outputs = recipe_.model.classes.value_or(0);
  loss_.frames = outputs / characters;
  if (outputs > 0 && outputs % characters == 0) return;
  fail_at(place("model", "classes"),
          "the loss " + loss_name(loss()) + " needs model.classes, a multiple of the " +
              std::to_string(characters) +
              " characters of the training set, the blank included: one output for each in every "
              "frame");
}

}  // namespace steelyard
