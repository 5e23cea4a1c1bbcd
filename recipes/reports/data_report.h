// A summary of a recipe's data, without training.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"

namespace steelyard {

struct DataReport {
  DatasetSplits splits = {};  // the samples that can be read, which all else is about
  // Samples of each class; empty for a regression.
  std::vector<std::int64_t> train_counts = {};
  std::vector<std::int64_t> test_counts = {};
  Normalization statistics = {};  // of the training set
  // Smallest and largest [height, width] of the images that samples are made of.
  std::optional<std::array<std::array<std::int64_t, 2>, 2>> image_sizes = {};
  // The names of two samples of equal content, to which targets that are numbers belong. A test
  // sample that is trained on says nothing about the model; equal training samples of two classes
  // cannot both be learned.
  using Pair = std::array<std::string, 2>;
  std::vector<Pair> tested_and_trained = {};
  std::vector<Pair> of_two_targets = {};
  std::vector<std::string> faults = {};  // what is wrong with each of the other samples
};

// Reads every sample. Throws InputError where no training sample can be read.
DataReport describe_data(const DatasetSplits& splits);

std::string to_string(const DataReport& report, std::int64_t validation);

}  // namespace steelyard
