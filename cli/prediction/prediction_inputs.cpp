#include "cli/prediction/prediction_inputs.h"

#include <fmt/core.h>

#include "steelyard/framework/data/arrays/array_dataset.h"
#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/data/images/image_folder.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/data/tables/table_dataset.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::cli {
namespace {

namespace fs = std::filesystem;

PredictionInputs of_source(std::shared_ptr<const SampleSource> source, bool named) {
  PredictionInputs inputs{.named = named};
  inputs.samples.source = std::move(source);
  return inputs;
}

PredictionInputs of_images(std::vector<std::string> paths, const SampleForm& form) {
  if (form.dtype != DType::kU8 || form.shape.size() != 3) {
    throw InputError(printable(paths[0]) + ": is an image, the model takes " +
                     std::string(dtype_name(form.dtype)) + " " + shape_string(form.shape));
  }
  ImageTransforms transforms = form.transforms.value_or(ImageTransforms{});
  transforms.grey = form.shape[2] == 1;
  return of_source(
      image_samples(std::make_shared<ImageFiles>(std::move(paths)), transforms, form.shape), true);
}

PredictionInputs of_folder(const fs::path& folder, const SampleForm& form, BadInputs bad_inputs) {
  FoundImages found = find_images(
      folder, bad_inputs == BadInputs::kKeep ? UnreadableImages::kList : UnreadableImages::kRefuse);
  PredictionInputs inputs = of_images(std::move(found.paths), form);
  inputs.note = found.others.note(folder);
  return inputs;
}

// The only array, or the one that is called inputs or x_test.
std::shared_ptr<const SampleSource> of_arrays(const fs::path& file) {
  NpyFile arrays(file);
  const std::vector<std::string> names = arrays.names();
  if (names.size() == 1) return array_samples(arrays.array(names[0]));
  for (const char* name : {"inputs", "x_test"}) {
    if (arrays.contains(name)) return array_samples(arrays.array(name));
  }
  throw InputError(printable(file.string()) +
                   ": expected one array, or one called inputs or x_test");
}

// By its name, or by the model where it takes tables.
bool is_table(const fs::path& file, const std::string& kind, const SampleForm& form) {
  const std::string extension = file.extension().string();
  return extension == ".csv" || extension == ".tsv" || extension == ".tab" ||
         (!form.names.columns.empty() && kind == kCsvKind);
}

PredictionInputs of_table(const fs::path& file, const SampleForm& form, BadInputs bad_inputs) {
  if (form.names.columns.empty() || !form.table) {
    throw InputError(printable(file.string()) + ": is a table, the model was not trained on one" +
                     " (a run's folder says its columns)");
  }
  const BadRows bad_rows = bad_inputs == BadInputs::kKeep ? BadRows::kKeep : BadRows::kRefuse;
  return of_source(table_features(file, *form.table, form.names, bad_rows), true);
}

std::vector<std::string> names_of(const std::vector<NamedInput>& inputs) {
  std::vector<std::string> names;
  for (const NamedInput& input : inputs) names.push_back(input.name);
  return names;
}

// Reads the inputs of a model that takes several.
PredictionInputs of_named_inputs(const fs::path& file, const SampleForm& form) {
  const std::string kind = kind_of(InputFile(file));
  const std::vector<std::string> names = names_of(form.names.inputs);
  if (kind == kSafetensorsKind) return {.samples = load_safetensors_inputs(file, names)};
  if (file.extension() == ".npz") return {.samples = load_npy_inputs(file, names)};
  throw InputError(printable(file.string()) + ": is " + kind +
                   ", the model takes several inputs: a safetensors or .npz file with them");
}

PredictionInputs read_file(const fs::path& file, const SampleForm& form, BadInputs bad_inputs) {
  if (!form.names.inputs.empty() && !is_folder(file)) return of_named_inputs(file, form);
  if (is_folder(file)) return of_folder(file, form, bad_inputs);
  const std::string kind = kind_of(InputFile(file));
  if (kind.ends_with(" image") && kind != "a GIF image") return of_images({file.string()}, form);
  if (has_image_extension(file.filename().string())) return of_images({file.string()}, form);
  if (kind.starts_with("NumPy array") || kind == "a NumPy array") {
    return of_source(of_arrays(file), false);
  }
  if (is_table(file, kind, form)) return of_table(file, form, bad_inputs);
  PredictionInputs inputs;
  if (kind == kSafetensorsKind || file.extension() == ".safetensors") {
    inputs.samples = load_safetensors_inputs(file);
  } else if (kind == "gzip" || kind.starts_with("IDX")) {
    inputs.samples = load_idx_images(file);
  } else {
    throw InputError(printable(file.string()) +
                     ": expected images, a table, a NumPy array, a safetensors file or IDX images" +
                     looks_like(kind));
  }
  return inputs;
}

Shape shape_of(const Dataset& samples) {
  if (!samples.source) return samples.inputs.shape();
  Shape shape = samples.source->shape();
  shape.insert(shape.begin(), samples.source->size());
  return shape;
}

void require_fit(const std::string& file, const Dataset& samples, const SampleForm& form) {
  if (samples.names.inputs != form.names.inputs) {
    throw InputError(file + ": expected inputs " +
                     sample_form_text(form.dtype, form.shape, form.names) + ", got " +
                     sample_form_text(samples.dtype(), samples.sample_shape(), samples.names));
  }
  const Shape found = shape_of(samples);
  Shape expected = form.shape;
  expected.insert(expected.begin(), found.empty() ? 0 : found[0]);
  if (found == expected && samples.dtype() == form.dtype) {
    if (found[0] > 0) return;
    throw InputError(file + ": expected 1 sample or more, got inputs " + shape_string(found));
  }
  std::string shape = shape_string(expected);
  if (found.size() != expected.size()) {  // which of its sizes is the number of samples?
    shape = "[samples" + std::string(expected.size() > 1 ? ", " : "") +
            shape_string(form.shape).substr(1);
  }
  throw InputError(fmt::format("{}: expected inputs {} {}, got {} {}", file, dtype_name(form.dtype),
                               shape, dtype_name(samples.dtype()), shape_string(found)));
}

}  // namespace

PredictionInputs read_prediction_inputs(const fs::path& file, const SampleForm& form,
                                        BadInputs bad_inputs) {
  PredictionInputs inputs = read_file(file, form, bad_inputs);
  Dataset& samples = inputs.samples;
  if (form.shape.size() == 3) add_channel_dimension(samples);
  // Images that a file holds in one size, as the dataset's.
  if (form.transforms && !inputs.named && shape_of(samples).size() == 4 && samples.size() > 0) {
    samples.source = transformed_samples(samples_of(samples), *form.transforms);
    samples.inputs = Tensor();
  }
  const std::string name = printable(file.string());
  require_fit(name, samples, form);
  return inputs;
}

}  // namespace steelyard::cli
