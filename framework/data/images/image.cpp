#include "steelyard/framework/data/images/image.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard {
namespace {

using namespace std::string_view_literals;

DecodedImage decoded(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xD8\xFF"sv)) return decode_jpeg(bytes);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n"sv)) return decode_png(bytes);
  if (bytes.starts_with("RIFF"sv) &&
      bytes.substr(std::min<std::size_t>(8, bytes.size())).starts_with("WEBP"sv)) {
    return decode_webp(bytes);
  }
  if (bytes.starts_with("BM"sv)) return decode_bmp(bytes);
  throw InputError("expected an image, " + decoded_formats() + looks_like(kind_of(bytes)));
}

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

std::string extension_of(std::string_view file_name) {
  return in_lower_case(std::filesystem::path(file_name).extension().string());
}

}  // namespace

void require_image_size(std::int64_t width, std::int64_t height) {
  if (width > 0 && height > 0 && width <= kMaxImagePixels && height <= kMaxImagePixels / width) {
    return;
  }
  throw InputError("expected an image of 1 to " + std::to_string(kMaxImagePixels) +
                   " pixels, got " + std::to_string(width) + " x " + std::to_string(height));
}

std::string decoded_formats() {
  return have_image_libraries() ? "JPEG, PNG, WebP or BMP"
                                : "BMP (this build has no libraries for JPEG, PNG and WebP)";
}

const std::vector<std::string>& image_extensions() {
  static const std::vector<std::string> extensions{".jpg", ".jpeg", ".png", ".webp", ".bmp"};
  return extensions;
}

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has_image_extension(std::string_view file_name) {
  const std::string extension = extension_of(file_name);
  const auto& known = image_extensions();
  return std::find(known.begin(), known.end(), extension) != known.end();
}

bool has_other_image_extension(std::string_view file_name) {
  constexpr std::array<std::string_view, 11> kNotRead{
      ".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm", ".pgm", ".jfif"};
  const std::string extension = extension_of(file_name);
  return std::find(kNotRead.begin(), kNotRead.end(), extension) != kNotRead.end();
}

Image decode_image(std::string_view bytes, std::int64_t channels, const std::string& name) {
  try {
    DecodedImage result = with_memory_for(name, [&] { return decoded(bytes); });
    Image& image = result.image;
    if (image.channels != channels) {
      image.pixels = channels == 1 ? grey_of(image.pixels) : colour_of(image.pixels);
      image.channels = channels;
    }
    return oriented(std::move(image), result.orientation);
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

Image read_image(const std::string& path, std::int64_t channels, std::string* digest) {
  const std::string bytes = read_file(path, kMaxImageFileBytes);
  if (digest != nullptr) *digest = sha256_of(bytes);
  return decode_image(bytes, channels, printable(path));
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
