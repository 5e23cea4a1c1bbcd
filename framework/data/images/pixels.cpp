#include "steelyard/framework/data/images/pixels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

// ITU-R BT.601, in 16-bit fixed point as Pillow has it.
std::vector<std::uint8_t> grey_of(const std::vector<std::uint8_t>& rgb) {
  std::vector<std::uint8_t> grey(rgb.size() / 3);
  for (std::size_t i = 0; i < grey.size(); ++i) {
    const std::uint32_t sum =
        19595U * rgb[3 * i] + 38470U * rgb[3 * i + 1] + 7471U * rgb[3 * i + 2] + 0x8000U;
    grey[i] = static_cast<std::uint8_t>(sum >> 16);
  }
  return grey;
}

std::vector<std::uint8_t> colour_of(const std::vector<std::uint8_t>& grey) {
  std::vector<std::uint8_t> rgb;
  rgb.reserve(grey.size() * 3);
  for (const std::uint8_t value : grey) rgb.insert(rgb.end(), 3, value);
  return rgb;
}

}  // namespace

void require_image_size(std::int64_t width, std::int64_t height) {
  if (width > 0 && height > 0 && width <= kMaxImagePixels && height <= kMaxImagePixels / width) {
    return;
  }
  throw InputError("expected an image of 1 to " + std::to_string(kMaxImagePixels) +
                   " pixels, got " + std::to_string(width) + " x " + std::to_string(height));
}

Image in_channels(Image image, std::int64_t channels) {
  if (image.channels == channels) return image;
  image.pixels = channels == 1 ? grey_of(image.pixels) : colour_of(image.pixels);
  image.channels = channels;
  return image;
}

// Source: EXIF 2.32, 4.6.4 A, Orientation: where row 0 and column 0 are when the image is looked
// at.
Image oriented(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{image.height, image.width, image.channels, {}};
  if (transposed) std::swap(out.height, out.width);
  out.pixels.resize(image.pixels.size());
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      const std::int64_t row = transposed ? x : y;
      const std::int64_t column = transposed ? y : x;
      const std::int64_t from_y = from_bottom ? image.height - 1 - row : row;
      const std::int64_t from_x = from_right ? image.width - 1 - column : column;
      const std::uint8_t* from =
          image.pixels.data() + (from_y * image.width + from_x) * image.channels;
      to = std::copy_n(from, image.channels, to);
    }
  }
  return out;
}

}  // namespace steelyard
