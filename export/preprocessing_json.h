// The JSON form of image transforms in files.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "steelyard/framework/data/images/transforms.h"

namespace steelyard::deploy {

// {"resize": [H, W], "resize_shorter", "centre_crop": [H, W], "interpolation", "grey"}: what is not
// applied is absent.
nlohmann::ordered_json transforms_json(const ImageTransforms& transforms);

// The same read back. Throws InputError for what no training has, and the library's exceptions for
// other types.
ImageTransforms transforms_from(const nlohmann::json& json);

}  // namespace steelyard::deploy
