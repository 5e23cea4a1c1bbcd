// What evaluation makes of an image.
#pragma once

#include <string>

#include "steelyard/framework/data/images/pixels.h"
#include "steelyard/framework/data/images/transform_options.h"  // IWYU pragma: export

namespace steelyard {

// Resized and cropped, without the random part. Throws InputError for a crop that is larger than
// the image.
Image transformed(const Image& image, const ImageTransforms& transforms);

// "28 x 30", height first, for messages.
std::string size_text(std::int64_t height, std::int64_t width);

}  // namespace steelyard
