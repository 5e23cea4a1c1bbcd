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

std::string extension_of(std::string_view file_name) {
  return in_lower_case(std::filesystem::path(file_name).extension().string());
}

}  // namespace

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
    return oriented(in_channels(std::move(result.image), channels), result.orientation);
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

Image read_image(const std::string& path, std::int64_t channels, std::string* digest) {
  const std::string bytes = read_file(path, kMaxImageFileBytes);
  if (digest != nullptr) *digest = sha256_of(bytes);
  return decode_image(bytes, channels, printable(path));
}

}  // namespace steelyard
