// The names that stand for the numbers of a dataset (classes, columns, inputs). Checkpoints contain
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// A column of a table, and the features that it gives: one of a number, or one for each category, 1
// for the category that a row has and 0 for the others.
struct TableColumn {
  std::string name;
  std::vector<std::string> categories = {};  // none: a number
  std::optional<float> missing = {};         // of a number: what stands for a missing value

  bool operator==(const TableColumn& other) const = default;
};

inline std::int64_t feature_count(const std::vector<TableColumn>& columns) {
  std::int64_t count = 0;
  for (const TableColumn& column : columns) {
    count += column.categories.empty() ? 1 : static_cast<std::int64_t>(column.categories.size());
  }
  return count;
}

// One of several inputs of a sample, whose values lie one after another in it.
struct NamedInput {
  std::string name;
  Shape shape;  // of one sample

  bool operator==(const NamedInput& other) const = default;
};

// A word without the spaces around it, which do not count in tables and lists of labels.
inline std::string_view trimmed(std::string_view word) {
  const std::size_t begin = word.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return word.substr(begin, word.find_last_not_of(' ') - begin + 1);
}

// The label of a class, or -1 where `names` do not have it.
inline std::int64_t label_of(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : found - names.begin();
}

struct DatasetNames {
  std::vector<std::string> classes = {};  // of the labels 0, 1, ...; empty: the numbers themselves
  std::vector<TableColumn> columns = {};  // of the features; empty: no table
  std::vector<NamedInput> inputs = {};    // empty: a sample is one input

  bool operator==(const DatasetNames& other) const = default;
};

// The form of a sample: "f32 [28, 28, 1]", "ids [16], mask [16]".
std::string sample_form_text(DType dtype, const Shape& sample, const DatasetNames& names);

}  // namespace steelyard
