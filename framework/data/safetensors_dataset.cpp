#include "steelyard/framework/data/safetensors_dataset.h"

#include <algorithm>
#include <string>

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/named_inputs.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/float_range.h"
#include "steelyard/framework/folders.h"
#include "steelyard/framework/printable.h"
#include "steelyard/framework/safetensors.h"

namespace steelyard {
namespace {

Tensor as_inputs(const NamedTensor& named, const std::string& file) {
  const Tensor& tensor = named.tensor;
  const std::string what = file + ": " + printable(named.name);
  if (tensor.dtype() == DType::kU8) return tensor;
  if (tensor.dtype() == DType::kBool) {
    throw InputError(what + ": expected whole numbers or floats, got bool");
  }
  if (!is_floating(tensor.dtype())) return whole_numbers(tensor, what);
  require_within_float32(tensor, what);
  return tensor.to(DType::kF32);
}

// One value [N] of each sample as [N, 1].
Tensor in_rows(const Tensor& values) {
  return values.rank() == 1 ? values.reshape({values.dim(0), 1}) : values;
}

Tensor as_targets(const Tensor& tensor, const std::string& file) {
  if (is_floating(tensor.dtype())) {
    require_within_float32(tensor, file + ": targets");
    const Tensor values = tensor.to(DType::kF32);
    return in_rows(values);
  }
  if (tensor.dtype() == DType::kBool) {
    throw InputError(file +
                     ": expected targets of integers (labels) or of floating-point numbers "
                     "(regression), got bool");
  }
  return tensor.to(DType::kI64);
}

const NamedTensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

// Throws where one of `names` is missing or, if they must be all, where there is another tensor.
void require_tensors(const std::vector<NamedTensor>& tensors, const std::vector<std::string>& names,
                     bool all, const std::string& file) {
  std::string expected = file + ": expected the tensor" + (names.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < names.size(); ++i) {
    expected += (i == 0 ? " " : i + 1 < names.size() ? ", " : " and ") + printable(names[i]);
  }
  for (const NamedTensor& t : tensors) {
    if (!all || std::find(names.begin(), names.end(), t.name) != names.end()) continue;
    throw InputError(expected + ", got '" + printable(t.name) + "'");
  }
  for (const std::string& name : names) {
    if (find(tensors, name) != nullptr) continue;
    throw InputError(expected + ", '" + printable(name) + "' is missing");
  }
}

std::vector<std::string> input_names(const std::vector<std::string>& names) {
  return names.empty() ? std::vector<std::string>{"inputs"} : names;
}

// The tensors of those names; where there is no list, `inputs`.
void set_inputs(Dataset& dataset, const std::vector<NamedTensor>& tensors,
                const std::vector<std::string>& names, const std::string& file) {
  if (names.empty()) {
    dataset.inputs = in_rows(as_inputs(*find(tensors, "inputs"), file));
    return;
  }
  std::vector<InputSource> inputs;
  for (const std::string& name : names) {
    const Tensor values = in_rows(as_inputs(*find(tensors, name), file));
    const std::string what = file + ": " + printable(name);
    if (values.rank() < 2) {
      throw InputError(what + ": expected inputs [N, ...], got " + shape_string(values.shape()));
    }
    require_finite(values, what);
    inputs.push_back({name, std::make_shared<TensorSamples>(values)});
  }
  set_named_inputs(dataset, inputs, file);
}

Dataset load_file(const std::filesystem::path& path, const std::vector<std::string>& inputs) {
  const std::string name = printable(path.string());
  const std::vector<NamedTensor> tensors = load_tensors(path).tensors;
  std::vector<std::string> expected = input_names(inputs);
  expected.emplace_back("targets");
  require_tensors(tensors, expected, /*all=*/true, name);
  Dataset dataset;
  set_inputs(dataset, tensors, inputs, name);
  dataset.targets = as_targets(find(tensors, "targets")->tensor, name);
  return dataset;
}

}  // namespace

DatasetSplits load_safetensors_dataset(const std::filesystem::path& folder, DatasetParts parts,
                                       const TargetOptions& targets,
                                       const std::vector<std::string>& inputs) {
  require_folder(folder, "with train.safetensors and test.safetensors");
  const auto train_path = folder / "train.safetensors";
  const auto test_path = folder / "test.safetensors";
  if (parts == DatasetParts::kTest) {
    DatasetSplits splits{{}, load_file(test_path, inputs)};
    splits.test.classes = count_classes(splits.test.targets, printable(test_path.string()));
    convert_targets(splits.test, targets);
    validate_dataset(splits.test, printable(test_path.string()));
    return splits;
  }
  DatasetSplits splits{load_file(train_path, inputs), load_file(test_path, inputs)};
  splits.train.classes = count_classes(splits.train.targets, printable(train_path.string()));
  splits.test.classes = splits.train.classes;
  convert_targets(splits.train, targets);
  convert_targets(splits.test, targets);
  validate_dataset(splits.train, printable(train_path.string()));
  validate_dataset(splits.test, printable(test_path.string()));
  require_same_samples(splits, printable(test_path.string()), "train.safetensors");
  return splits;
}

Dataset load_safetensors_inputs(const std::filesystem::path& path,
                                const std::vector<std::string>& inputs) {
  const std::string name = printable(path.string());
  const std::vector<NamedTensor> tensors = read_safetensors(path).tensors;
  require_tensors(tensors, input_names(inputs), /*all=*/false, name);
  Dataset dataset;
  set_inputs(dataset, tensors, inputs, name);
  return dataset;
}

}  // namespace steelyard
