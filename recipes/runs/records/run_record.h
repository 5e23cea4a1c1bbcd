// The record in a checkpoint about the run that wrote it: enough to use its model without the
// training data, and to notice other data or another recipe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// The input format of a model, and the meaning of its outputs.
struct InputFormat {
  DType dtype = DType::kU8;  // u8 or f32
  Shape sample;              // as the dataset's
  std::int64_t classes = 0;  // 0 for regression
  DatasetNames names = {};   // of classes, columns and inputs, where the dataset has them

  // A batch of `count` samples.
  Shape batch(std::int64_t count) const;
  bool operator==(const InputFormat& other) const = default;
};
// The format of a dataset's samples.
InputFormat input_format(const Dataset& dataset);
// "u8 [28, 28, 1], 10 classes".
std::string to_string(const InputFormat& format);
// "; its class 2 is 'cat', the dataset's 'dog'", or "" where the names are the same.
std::string difference_of_names(const DatasetNames& trained_on, const DatasetNames& found);

// In RunRecord::sources, of the model whose outputs the run learns from.
inline constexpr const char* kTeacherSource = "train.distill.checkpoint";
// Before the name of a plugin there, whose parts the recipe names.
inline constexpr std::string_view kPluginSource = "plugin ";

struct RunRecord {
  InputFormat input;
  Normalization normalization;  // what inputs were and are normalized with
  std::string data_digest;      // digest_of() the training and the validation split
  YamlNode recipe;              // essential_recipe()
  // model_digest() of the checkpoints that the run began with or learns from, by the recipe's keys,
  // and sha256 of plugins.
  std::map<std::string, std::string> sources = {};
  std::string network = {};  // of an imported model, as imports::text_of() writes it; else empty
  Normalization target_normalization = {};  // that the targets had; empty: none
  // Of data without labels: the power of each output of the float model, or the divergence of equal
  // chances from its classes. See OutputUnits.
  std::vector<double> output_units = {};
};

// Identifies the model of a checkpoint: the sha256 of names, dtypes, shapes and values of its
// tensors, without training state.
std::string model_digest(std::vector<NamedTensor> tensors);

// A resolved recipe without what a run may change when it is resumed: device, data.path, and what
// is written where and when.
YamlNode lasting_recipe(const Recipe& recipe);
// Also without what may differ between runs of equal results: the name and all paths.
YamlNode essential_recipe(const Recipe& recipe);
// Whether `later` has more epochs than `earlier`; `earlier` then gets as many.
bool take_more_epochs(YamlNode& earlier, const YamlNode& later);

// Adds the record under the keys "data" (JSON) and "recipe" (YAML).
void add_record(const RunRecord& record, TensorFileMetadata& metadata);

// The record of a checkpoint; nothing where an earlier version wrote it. The recipe gets the
// defaults of options that are newer than the file. Throws InputError that starts with `source`.
std::optional<RunRecord> record_in(const TensorFileMetadata& metadata, const std::string& source,
                                   const Registries& registries);
// Only RunRecord::sources; empty where an earlier version wrote the file.
std::map<std::string, std::string> sources_in(const TensorFileMetadata& metadata,
                                              const std::string& source);
// Only RunRecord::data_digest.
std::optional<std::string> data_digest_in(const TensorFileMetadata& metadata,
                                          const std::string& source);
// Only RunRecord::network.
std::string network_in(const TensorFileMetadata& metadata);
// Only how inputs were normalized.
std::optional<Normalization> normalization_in(const TensorFileMetadata& metadata,
                                              const std::string& source);

// Only how targets were normalized, if at all; nothing for a file that does not say, or is of no
// regression.
std::optional<Normalization> target_normalization_in(const TensorFileMetadata& metadata,
                                                     const std::string& source);

// Only RunRecord::output_units.
std::vector<double> output_units_in(const TensorFileMetadata& metadata, const std::string& source);

// Only InputFormat::dtype.
std::optional<DType> input_dtype_in(const TensorFileMetadata& metadata, const std::string& source);

// Only the names of the data; none where a file does not say.
DatasetNames dataset_names_in(const TensorFileMetadata& metadata, const std::string& source);

// As a recipe's `data.normalize` has it: "{mean: [0.5], std: [0.25]}", or "none". Parsing gives the
// same floats.
std::string normalize_text(const Normalization& normalization);

}  // namespace steelyard
