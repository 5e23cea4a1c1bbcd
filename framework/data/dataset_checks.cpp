// What datasets are asked before a run begins.
#include <algorithm>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

// "inputs f32 [12], targets i64 []": of one sample.
std::string sample_text(const Dataset& dataset, const std::string& target) {
  return "inputs " + sample_form_text(dataset.dtype(), dataset.sample_shape(), dataset.names) +
         ", " + target;
}

std::string names_text(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "'" : ", '") + printable(name) + "'";
  return text;
}

// A name that stands among others again; empty where there is none.
std::string first_twice(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? "" : *twice;
}

// Which of the test set's labels the training set does not have.
std::string where_beyond(const Dataset& test, std::int64_t classes) {
  if (test.targets.dtype() != DType::kI64) return "";
  const auto labels = test.targets.span<std::int64_t>();
  const auto bad = std::find_if(labels.begin(), labels.end(),
                                [&](std::int64_t label) { return label >= classes; });
  if (bad == labels.end()) return "";
  const std::int64_t of_sample = std::ssize(labels) / test.targets.dim(0);
  return ": the label " + std::to_string(*bad) + " in sample " +
         std::to_string((bad - labels.begin()) / of_sample);
}

}  // namespace

void require_target_for_each(const Dataset& dataset, const std::string& source) {
  const Tensor& y = dataset.targets;
  if (y.defined() && y.rank() >= 1 && y.dim(0) == dataset.size()) return;
  throw InputError(source + ": expected targets for " + std::to_string(dataset.size()) +
                   " samples, got shape " + (y.defined() ? shape_string(y.shape()) : "[]"));
}

void require_input_dtype(const Dataset& dataset, const std::string& source) {
  const DType dtype = dataset.dtype();
  if (dtype == DType::kU8 || dtype == DType::kF32) return;
  throw InputError(source + ": expected inputs u8 or f32, got " + std::string(dtype_name(dtype)));
}

void validate_dataset(const Dataset& dataset, const std::string& source) {
  const auto require = [&source](bool condition, const std::string& what) {
    if (!condition) throw InputError(source + ": " + what);
  };
  const Tensor& y = dataset.targets;
  require((dataset.source || dataset.inputs.defined()) && y.defined(),
          "expected inputs and targets");
  require_input_dtype(dataset, source);
  Shape shape;
  if (dataset.source) {
    shape = dataset.sample_shape();
    shape.insert(shape.begin(), dataset.size());
  } else {
    shape = dataset.inputs.shape();
  }
  require(shape.empty() || shape[0] > 0,
          "expected 1 sample or more, got inputs " + shape_string(shape));
  require(shape.size() >= 2 && std::find(shape.begin(), shape.end(), 0) == shape.end(),
          "expected inputs [N, ...] with a value or more in a sample, got " + shape_string(shape));
  require_target_for_each(dataset, source);
  // What is read later is looked at then.
  if (dataset.inputs.defined()) require_finite(dataset.inputs, source + ": inputs");
  validate_targets(dataset, source);
}

void require_same_samples(const DatasetSplits& splits, const std::string& source,
                          const std::string& train_name) {
  const std::string expected = sample_text(splits.train, target_text(splits.train));
  const std::string got = sample_text(splits.test, target_text(splits.test));
  if (expected == got) return;
  throw InputError(source + ": expected samples as in " + train_name + ", " + expected + "; got " +
                   got);
}

void require_names(const Dataset& dataset, const std::string& source) {
  const auto& [classes, columns, inputs] = dataset.names;
  if (!classes.empty() && std::ssize(classes) != dataset.classes) {
    throw InputError(source + ": expected names of the " + std::to_string(dataset.classes) +
                     " classes, got " + std::to_string(classes.size()) + ": " +
                     names_text(classes));
  }
  if (const std::string twice = first_twice(classes); !twice.empty()) {
    throw InputError(source + ": expected different names of classes, got '" + printable(twice) +
                     "' twice");
  }
  const Shape sample = dataset.sample_shape();
  if (!columns.empty() && sample != Shape{feature_count(columns)}) {
    throw InputError(source + ": expected samples of the " +
                     std::to_string(feature_count(columns)) + " features of its columns, got " +
                     shape_string(sample));
  }
  std::int64_t values = 0;
  for (const NamedInput& input : inputs) values += shape_size(input.shape);
  if (!inputs.empty() && values != shape_size(sample)) {
    throw InputError(source + ": expected samples of the " + std::to_string(values) +
                     " values of its inputs, got " + shape_string(sample));
  }
}

void require_test_of(const Dataset& train, const Dataset& test, const std::string& source) {
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw InputError(source + ": expected " + expected + " as in the training set, got " + got);
  };
  const auto text_of = [](const Dataset& dataset) {
    // Texts are as long as the longest.
    const bool texts = target_kind(dataset.targets, dataset.classes) == TargetKind::kText;
    return sample_text(dataset, texts ? "texts" : target_text(dataset));
  };
  const std::string expected = text_of(train), got = text_of(test);
  if (expected != got) fail("samples of " + expected + ",", got);
  const bool tokens = target_kind(train.targets, train.classes) == TargetKind::kTokens;
  if (!tokens && test.classes > train.classes) {
    fail(std::to_string(train.classes) + " classes",
         std::to_string(test.classes) + where_beyond(test, train.classes));
  }
  if (train.names.classes != test.names.classes) {
    fail("the classes " + names_text(train.names.classes), names_text(test.names.classes));
  }
  if (train.names.columns != test.names.columns) fail("the columns", "others");
}

}  // namespace steelyard
