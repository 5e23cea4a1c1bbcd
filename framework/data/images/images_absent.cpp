// In place of jpeg.cpp, png.cpp and webp.cpp where CMake did not find their libraries.
#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

[[noreturn]] void absent(const std::string& format) {
  throw InputError(format +
                   " image: this build cannot read it; libjpeg-turbo, libpng and "
                   "libwebp were not found when it was configured (STEELYARD_IMAGES)");
}

}  // namespace

DecodedImage decode_jpeg(std::string_view) { absent("JPEG"); }
DecodedImage decode_png(std::string_view) { absent("PNG"); }
DecodedImage decode_webp(std::string_view) { absent("WebP"); }
std::string encode_png(const Image&) { absent("PNG"); }
bool have_image_libraries() { return false; }

}  // namespace steelyard
