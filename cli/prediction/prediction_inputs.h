// What `predict` reads: files of samples, images, tables.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/tables/table_options.h"

namespace steelyard::cli {

// What a model takes, and how its training prepared it.
struct SampleForm {
  DType dtype = DType::kU8;
  Shape shape = {};
  DatasetNames names = {};
  std::optional<ImageTransforms> transforms = {};
  std::optional<TableOptions> table = {};
};

// What to do with a part of the input that is no sample of the model: a damaged image, a bad row.
enum class BadInputs {
  kRefuse,  // an InputError, for some before anything is predicted
  kKeep     // a sample whose reading is one
};

// Samples without targets. The form's transforms are applied to images; a folder, an image or a
// table gives samples that have names of their own (`named`).
struct PredictionInputs {
  Dataset samples = {};
  bool named = false;
  std::optional<std::string> note = {};  // about files that are left out
};

// Reads a safetensors file with `inputs`, IDX images, NumPy arrays, an image, a folder of images,
// or a table of a model that was trained on one. Throws InputError that names the file unless it
// holds a sample or more of that form.
PredictionInputs read_prediction_inputs(const std::filesystem::path& file, const SampleForm& form,
                                        BadInputs bad_inputs);

}  // namespace steelyard::cli
