// Files that images are decoded from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/data/images/pixels.h"  // IWYU pragma: export

namespace steelyard {

// Longer files are not read.
inline constexpr std::uint64_t kMaxImageFileBytes = std::uint64_t{1} << 29;

// What libraries decode in this build: "JPEG, PNG, WebP and BMP", for messages.
std::string decoded_formats();

// The extensions of file names that are images, in lower case: ".jpg".
const std::vector<std::string>& image_extensions();
bool has_image_extension(std::string_view file_name);
// Whether the name is that of an image in a format that is not read: ".gif", ".heic".
bool has_other_image_extension(std::string_view file_name);
// ASCII only, as extensions are compared.
std::string in_lower_case(std::string text);

// The image in a JPEG, PNG, WebP or BMP file's bytes, which tell the format themselves, turned as
// its EXIF orientation says. Grey becomes colour by repeating it, colour grey by ITU-R BT.601 luma;
// 16 bits become 8 by rounding; transparency is dropped. Throws InputError that starts with `name`
// for another format, one that this build lacks, a damaged or truncated file, an animation, and
// more than kMaxImagePixels. `channels` is 1 or 3.
Image decode_image(std::string_view bytes, std::int64_t channels, const std::string& name);
// The image in a regular file, decoded as above; `digest`, where it is not null, becomes the
// SHA-256 of its bytes.
Image read_image(const std::string& path, std::int64_t channels, std::string* digest = nullptr);

// The image as a PNG file. Throws InputError in a build without libpng.
std::string encode_png(const Image& image);

}  // namespace steelyard
