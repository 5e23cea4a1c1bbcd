// The JSON forms of what is done to the data before the model, in files.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// {"resize": [H, W], "resize_shorter", "centre_crop": [H, W], "interpolation", "grey"}: what is not
// applied is absent.
nlohmann::ordered_json transforms_json(const ImageTransforms& transforms);

// The transforms, read back. Throws InputError for what no training has, and the library's
// exceptions for other types.
ImageTransforms transforms_from(const nlohmann::json& json);

// [{"name", "categories": [...], "missing"}, ...]: a column of numbers has no categories, one
// without missing values no "missing".
nlohmann::ordered_json columns_json(const std::vector<TableColumn>& columns);
std::vector<TableColumn> columns_from(const nlohmann::json& json);  // throws as transforms_from()

// {"columns", "target": [...], "ignore": [...], "missing": [...], "delimiter"}: lists that are
// empty are absent, and so is a delimiter that the file's name tells.
nlohmann::ordered_json table_json(const TableFeatures& table);
TableFeatures table_from(const nlohmann::json& json);  // throws as transforms_from()

// {"dtype", "mean", "stddev", "transforms", "table"}, as exports have it: the last two are absent
// where there are none.
nlohmann::ordered_json preprocessing_json(const Preprocessing& preprocessing);
Preprocessing preprocessing_from(const nlohmann::json& json);  // throws as transforms_from()

}  // namespace steelyard::deploy
