#include "steelyard/framework/data/safetensors_dataset.h"

#include <algorithm>
#include <string>

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/float_range.h"
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

// "inputs f32 [12], targets i64 []": of one sample.
std::string sample_text(const Dataset& dataset) {
  const auto text = [](const Tensor& t) {
    return std::string(dtype_name(t.dtype())) + " " +
           shape_string(Shape(t.shape().begin() + 1, t.shape().end()));
  };
  return "inputs " + text(dataset.inputs) + ", targets " + text(dataset.targets);
}

// A stray label must not become a model of a million outputs.
std::int64_t count_classes(const Tensor& targets, const std::string& source) {
  if (targets.dtype() != DType::kI64 || targets.size() == 0) return 0;
  const auto labels = targets.span<std::int64_t>();
  const auto largest = std::max_element(labels.begin(), labels.end());
  if (*largest >= kMaxClasses) {
    throw InputError(source + ": expected labels below " + std::to_string(kMaxClasses) + ", got " +
                     std::to_string(*largest) + " in sample " +
                     std::to_string(largest - labels.begin()));
  }
  return std::max(*largest, std::int64_t{0}) + 1;
}

}  // namespace

DatasetSplits load_safetensors_dataset(const std::filesystem::path& folder, DatasetParts parts) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw InputError(printable(folder.string()) +
                     ": expected a folder with train.safetensors and test.safetensors");
  }
  const auto train_path = folder / "train.safetensors";
  const auto test_path = folder / "test.safetensors";
  if (parts == DatasetParts::kTest) {
    DatasetSplits splits{{}, load_file(test_path)};
    splits.test.classes = count_classes(splits.test.targets, printable(test_path.string()));
    validate_dataset(splits.test, printable(test_path.string()));
    return splits;
  }
  DatasetSplits splits{load_file(train_path), load_file(test_path)};
  splits.train.classes = count_classes(splits.train.targets, printable(train_path.string()));
  splits.test.classes = splits.train.classes;
  validate_dataset(splits.train, printable(train_path.string()));
  validate_dataset(splits.test, printable(test_path.string()));
  const std::string expected = sample_text(splits.train);
  const std::string got = sample_text(splits.test);
  if (expected != got) {
    throw InputError(printable(test_path.string()) +
                     ": expected samples as in train.safetensors, " + expected + "; got " + got);
  }
  return splits;
}

Tensor load_safetensors_inputs(const std::filesystem::path& path) {
  for (const NamedTensor& tensor : read_safetensors(path).tensors) {
    if (tensor.name == "inputs") return as_inputs(tensor.tensor, printable(path.string()));
  }
  throw InputError(printable(path.string()) + ": expected a tensor 'inputs'");
}

}  // namespace steelyard
