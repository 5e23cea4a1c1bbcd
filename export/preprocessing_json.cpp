#include "steelyard/export/preprocessing_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "steelyard/framework/error.h"
#include "steelyard/framework/json_integer.h"

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

}  // namespace steelyard::deploy
