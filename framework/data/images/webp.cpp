// WebP by libwebp.
#include <webp/decode.h>

#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

using namespace std::string_view_literals;

// Source: https://developers.google.com/speed/webp/docs/riff_container: chunks of a name, a length,
// little-endian, and bytes that are filled to an even number.
int orientation_of(std::string_view bytes) {
  constexpr std::size_t kRiffBytes = 12, kChunkBytes = 8;
  std::size_t at = kRiffBytes;
  while (at <= bytes.size() && bytes.size() - at >= kChunkBytes) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length |= std::size_t{static_cast<unsigned char>(bytes[at + 4 + i])} << (8 * i);
    }
    const std::string_view name = bytes.substr(at, 4);
    at += kChunkBytes;
    if (name == "EXIF"sv) {
      std::string_view block = bytes.substr(at, length);
      if (block.starts_with("Exif\0\0"sv)) block.remove_prefix(6);
      return exif_orientation(block);
    }
    at += length + length % 2;
  }
  return 1;
}

}  // namespace

DecodedImage decode_webp(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) {
    throw InputError("damaged WebP image");
  }
  if (features.has_animation != 0) throw InputError("expected one image, got an animated WebP");
  require_image_size(features.width, features.height);
  DecodedImage result{{features.height, features.width, 3, {}}, orientation_of(bytes)};
  const auto stride = static_cast<std::size_t>(features.width) * 3;
  result.image.pixels.resize(static_cast<std::size_t>(features.height) * stride);
  if (WebPDecodeRGBInto(data, bytes.size(), result.image.pixels.data(), result.image.pixels.size(),
                        static_cast<int>(stride)) == nullptr) {
    throw InputError("damaged WebP image");
  }
  return result;
}

}  // namespace steelyard
