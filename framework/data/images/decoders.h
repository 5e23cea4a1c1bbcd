// What decode_image() chooses from. Each decodes the whole file as it is stored, in RGB or grey,
// and throws InputError without the file's name.
#pragma once

#include <optional>
#include <string_view>

#include "steelyard/framework/data/images/image.h"

namespace steelyard {

struct DecodedImage {
  Image image;
  int orientation = 1;  // EXIF's
};

// In images_absent.cpp, where CMake found no libraries, the first three throw.
DecodedImage decode_jpeg(std::string_view bytes);
DecodedImage decode_png(std::string_view bytes);
DecodedImage decode_webp(std::string_view bytes);
DecodedImage decode_bmp(std::string_view bytes);
// Whether the first three are there.
bool have_image_libraries();

// The orientation in an EXIF block (a TIFF header and its first directory, EXIF 2.32, 4.6.4); 1
// where the block has none that is valid: cameras write what they like.
int exif_orientation(std::string_view tiff);

}  // namespace steelyard
