#include "steelyard/framework/data/safetensors_dataset.h"

#include <string>

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/float_range.h"
#include "steelyard/framework/folders.h"
#include "steelyard/framework/printable.h"
#include "steelyard/framework/safetensors.h"

namespace steelyard {
namespace {

Tensor as_inputs(const Tensor& tensor, const std::string& file) {
  if (tensor.dtype() == DType::kU8) return tensor;
  if (!is_floating(tensor.dtype())) {
    throw InputError(file + ": expected inputs u8, f16, bf16, f32 or f64, got " +
                     std::string(dtype_name(tensor.dtype())));
  }
  require_within_float32(tensor, file + ": inputs");
  return tensor.to(DType::kF32);
}

Tensor as_targets(const Tensor& tensor, const std::string& file) {
  if (is_floating(tensor.dtype())) {
    require_within_float32(tensor, file + ": targets");
    const Tensor values = tensor.to(DType::kF32);
    return values.rank() == 1 ? values.reshape({values.dim(0), 1}) : values;
  }
  if (tensor.dtype() == DType::kBool) {
    throw InputError(file +
                     ": expected targets of integers (labels) or of floating-point numbers "
                     "(regression), got bool");
  }
  return tensor.to(DType::kI64);
}

Dataset load_file(const std::filesystem::path& path) {
  const std::string name = printable(path.string());
  Dataset dataset;
  for (const NamedTensor& t : load_tensors(path).tensors) {
    if (t.name == "inputs") {
      dataset.inputs = as_inputs(t.tensor, name);
    } else if (t.name == "targets") {
      dataset.targets = as_targets(t.tensor, name);
    } else {
      throw InputError(name + ": expected the tensors inputs and targets, got '" +
                       printable(t.name) + "'");
    }
  }
  if (!dataset.inputs.defined() || !dataset.targets.defined()) {
    throw InputError(name + ": expected the tensors inputs and targets, '" +
                     (dataset.inputs.defined() ? "targets" : "inputs") + "' is missing");
  }
  return dataset;
}

}  // namespace

DatasetSplits load_safetensors_dataset(const std::filesystem::path& folder, DatasetParts parts,
                                       const TargetOptions& targets) {
  require_folder(folder, "with train.safetensors and test.safetensors");
  const auto train_path = folder / "train.safetensors";
  const auto test_path = folder / "test.safetensors";
  if (parts == DatasetParts::kTest) {
    DatasetSplits splits{{}, load_file(test_path)};
    splits.test.classes = count_classes(splits.test.targets, printable(test_path.string()));
    convert_targets(splits.test, targets);
    validate_dataset(splits.test, printable(test_path.string()));
    return splits;
  }
  DatasetSplits splits{load_file(train_path), load_file(test_path)};
  splits.train.classes = count_classes(splits.train.targets, printable(train_path.string()));
  splits.test.classes = splits.train.classes;
  convert_targets(splits.train, targets);
  convert_targets(splits.test, targets);
  validate_dataset(splits.train, printable(train_path.string()));
  validate_dataset(splits.test, printable(test_path.string()));
  require_same_samples(splits, printable(test_path.string()), "train.safetensors");
  return splits;
}

Tensor load_safetensors_inputs(const std::filesystem::path& path) {
  for (const NamedTensor& tensor : read_safetensors(path).tensors) {
    if (tensor.name == "inputs") return as_inputs(tensor.tensor, printable(path.string()));
  }
  throw InputError(printable(path.string()) + ": expected a tensor 'inputs'");
}

}  // namespace steelyard
