// Datasets in tables: a row for each sample.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"
#include "steelyard/framework/data/tables/table_options.h"

namespace steelyard {

// `request.path` is a folder with train.csv and test.csv (or .tsv), or one such file, of which
// `request.test_samples` are set aside. The first line names the columns. Without labels, a target
// is a column that is ignored, and may be absent. Features are f32, in the order of the columns; a
// column of categories gives one feature for each category of the training set, in their order.
// Rows are read from the file when they are asked for, after all were looked at once. Throws
// InputError with file, line and column for a row of another length, for what is no finite number
// and for a category that the training set does not have.
DatasetSplits load_table(const DatasetRequest& request);

// What to do with a row that gives no features.
enum class BadRows {
  kRefuse,  // an InputError
  kKeep     // a sample whose reading is one
};

// Features of a table for a model that was trained on `names`; other columns than those must be
// the target's, or ignored.
std::shared_ptr<const SampleSource> table_features(const std::filesystem::path& path,
                                                   const TableOptions& options,
                                                   const DatasetNames& names,
                                                   BadRows bad_rows = BadRows::kRefuse);

}  // namespace steelyard
