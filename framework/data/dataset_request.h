// The options of a dataset that a recipe gives.
#pragma once

#include <any>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/tables/table_options.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/data/tokens/token_options.h"

namespace steelyard {

// For the messages of loaders that find no test set.
inline constexpr const char* kOrTestAside =
    " (or data.test, which sets samples of the training set aside)";

struct DatasetRequest {
  std::string name = {};
  std::filesystem::path path = {};  // file or folder, as the loader expects
  // kTest: the training set is not needed, and may be absent on disk; a loader may leave it
  // undefined.
  DatasetParts parts = DatasetParts::kAll;
  std::optional<ImageTransforms> transforms = {};
  std::optional<TableOptions> table = {};
  std::optional<TokenOptions> tokens = {};
  // Whether samples have targets. False: every dataset is of inputs alone (drop_targets()).
  bool labels = true;
  TargetOptions targets = {};
  // Set aside as the test set, of a dataset that has none.
  std::optional<std::int64_t> test_samples = {};
  bool stratified = false;  // each class with its share of them (split_test())
  // The arrays that are the inputs of a sample, of a dataset that has several.
  std::vector<std::string> inputs = {};
  // Whether samples [H, W] of floats stay as they are: sequences, such as [length, features]. Else,
  // and of bytes, they are images of one channel, [H, W, 1].
  bool sequences = false;
  // The options of a dataset that a program added, of the type that its loader expects.
  std::any options = {};
  // Whether labels stay numbers: for a run that began without the names that the dataset itself
  // has.
  bool without_names = false;
  // What the numbers of a model that was trained on the dataset stand for. Absent: as the training
  // set has it.
  std::optional<DatasetNames> names = {};

  // What of the files is to be read, where there is a test set of its own and where there is none.
  bool needs_train(bool has_test) const {
    return parts == DatasetParts::kAll || !needs_test(has_test);
  }
  bool needs_test(bool has_test) const { return has_test || !test_samples; }

  // The names of classes, labels or characters, where they do not come from the training set.
  const std::vector<std::string>& known_classes() const {
    return names ? names->classes : targets.names;
  }
};

}  // namespace steelyard
