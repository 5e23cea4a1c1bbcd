// Images of 8 bits per channel in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace steelyard {

// More pixels than this are refused before anything is allocated.
inline constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 27;

struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 3;         // 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels;  // [height, width, channels]

  bool operator==(const Image& other) const = default;
};

// Throws InputError unless 1 x 1 to kMaxImagePixels.
void require_image_size(std::int64_t width, std::int64_t height);

// With 1 or 3 channels: grey becomes colour by repeating it, colour grey by ITU-R BT.601 luma.
Image in_channels(Image image, std::int64_t channels);

// `orientation` is EXIF's, 1 to 8: how the stored image is turned and mirrored to be looked at.
Image oriented(Image image, int orientation);

}  // namespace steelyard
