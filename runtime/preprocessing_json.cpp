#include "steelyard/runtime/preprocessing_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kLargestSide = 16384;

std::int64_t side_from(std::int64_t side) {
  if (side >= 1 && side <= kLargestSide) return side;
  throw InputError("transforms: expected sizes from 1 to 16384, got " + std::to_string(side));
}

std::array<std::int64_t, 2> size_from(const nlohmann::json& json) {
  const auto sides = integers_of<std::int64_t>(json);
  if (sides.size() != 2) throw InputError("transforms: expected a height and a width");
  return {side_from(sides[0]), side_from(sides[1])};
}

}  // namespace

nlohmann::ordered_json transforms_json(const ImageTransforms& transforms) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (transforms.resize) json["resize"] = *transforms.resize;
  if (transforms.resize_shorter) json["resize_shorter"] = *transforms.resize_shorter;
  if (transforms.centre_crop) json["centre_crop"] = *transforms.centre_crop;
  json["interpolation"] = word_of(transforms.interpolation);
  json["grey"] = transforms.grey;
  return json;
}

ImageTransforms transforms_from(const nlohmann::json& json) {
  ImageTransforms transforms;
  if (json.contains("resize")) transforms.resize = size_from(json.at("resize"));
  if (json.contains("resize_shorter")) {
    transforms.resize_shorter = side_from(integer_of<std::int64_t>(json.at("resize_shorter")));
  }
  if (json.contains("centre_crop")) transforms.centre_crop = size_from(json.at("centre_crop"));
  const auto word = json.at("interpolation").get<std::string>();
  if (word == word_of(Interpolation::kBicubic)) {
    transforms.interpolation = Interpolation::kBicubic;
  } else if (word != word_of(Interpolation::kBilinear)) {
    throw InputError("transforms: unknown interpolation");
  }
  json.at("grey").get_to(transforms.grey);
  return transforms;
}

nlohmann::ordered_json columns_json(const std::vector<TableColumn>& columns) {
  auto json = nlohmann::ordered_json::array();
  for (const TableColumn& column : columns) {
    auto& added = json.emplace_back(nlohmann::ordered_json{{"name", column.name}});
    if (!column.categories.empty()) added["categories"] = column.categories;
    if (column.missing) added["missing"] = *column.missing;
  }
  return json;
}

std::vector<TableColumn> columns_from(const nlohmann::json& json) {
  std::vector<TableColumn> columns;
  for (const auto& column : json) {
    TableColumn& added = columns.emplace_back();
    column.at("name").get_to(added.name);
    if (column.contains("categories")) column.at("categories").get_to(added.categories);
    if (!column.contains("missing")) continue;
    added.missing = column.at("missing").get<float>();
    if (!std::isfinite(*added.missing)) throw InputError("columns: a number that is not finite");
  }
  return columns;
}

nlohmann::ordered_json table_json(const TableFeatures& table) {
  const TableOptions& options = table.options;
  nlohmann::ordered_json json{{"columns", columns_json(table.columns)}};
  for (const auto& [key, names] : {std::pair("target", &options.target),
                                   {"ignore", &options.ignore},
                                   {"missing", &options.missing}}) {
    if (!names->empty()) json[key] = *names;
  }
  if (options.delimiter) json["delimiter"] = word_of(*options.delimiter);
  return json;
}

TableFeatures table_from(const nlohmann::json& json) {
  TableFeatures table{{}, columns_from(json.at("columns"))};
  for (const auto& [key, names] : {std::pair("target", &table.options.target),
                                   {"ignore", &table.options.ignore},
                                   {"missing", &table.options.missing}}) {
    if (json.contains(key)) json.at(key).get_to(*names);
  }
  if (json.contains("delimiter")) {
    table.options.delimiter = value_of<Delimiter>(json.at("delimiter").get<std::string>());
  }
  return table;
}

nlohmann::ordered_json preprocessing_json(const Preprocessing& preprocessing) {
  nlohmann::ordered_json json{{"dtype", dtype_name(preprocessing.dtype)},
                              {"mean", preprocessing.normalization.mean},
                              {"stddev", preprocessing.normalization.stddev}};
  if (preprocessing.transforms) json["transforms"] = transforms_json(*preprocessing.transforms);
  if (preprocessing.table) json["table"] = table_json(*preprocessing.table);
  return json;
}

Preprocessing preprocessing_from(const nlohmann::json& json) {
  Preprocessing preprocessing;
  const auto dtype = json.at("dtype").get<std::string>();
  if (dtype == dtype_name(DType::kU8)) {
    preprocessing.dtype = DType::kU8;
  } else if (dtype != dtype_name(DType::kF32)) {
    throw std::invalid_argument("unexpected dtype '" + dtype + "'");
  }
  json.at("mean").get_to(preprocessing.normalization.mean);
  json.at("stddev").get_to(preprocessing.normalization.stddev);
  if (json.contains("transforms"))
    preprocessing.transforms = transforms_from(json.at("transforms"));
  if (json.contains("table")) preprocessing.table = table_from(json.at("table"));
  return preprocessing;
}

}  // namespace steelyard::deploy
