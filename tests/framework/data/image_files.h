// Image files for tests, written by the formats' descriptions or by their libraries.
#pragma once

#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace steelyard::testing {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

inline std::string little_endian(std::uint32_t value, int count = 4) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

inline std::string png_chunk(const std::string& name, const std::string& body) {
  const std::string named = name + body;
  const auto* bytes = reinterpret_cast<const Bytef*>(named.data());
  const auto sum = static_cast<std::uint32_t>(crc32(0, bytes, static_cast<uInt>(named.size())));
  return big_endian(static_cast<std::uint32_t>(body.size())) + named + big_endian(sum);
}

inline std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  packed.resize(size);
  return packed;
}

// `rows`: each with a byte for its filter. `type` is PNG's colour type; `more`: further chunks.
inline std::string png_file(std::uint32_t width, std::uint32_t height, int bits, int type,
                            const std::string& rows, const std::string& more = "") {
  const std::string header = big_endian(width) + big_endian(height) + static_cast<char>(bits) +
                             static_cast<char>(type) + std::string(3, '\0');
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + more +
         png_chunk("IDAT", deflated(rows)) + png_chunk("IEND", "");
}

// A baseline file of `channels`: 1, 3 or 4, which are inks and have Adobe's mark.
inline std::string jpeg_file(unsigned width, unsigned height, int channels,
                             std::vector<std::uint8_t> pixels) {
  jpeg_error_mgr errors;
  jpeg_compress_struct image = {};
  image.err = jpeg_std_error(&errors);
  jpeg_create_compress(&image);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&image, &bytes, &size);
  image.image_width = width;
  image.image_height = height;
  image.input_components = channels;
  image.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&image);
  jpeg_set_quality(&image, 95, TRUE);
  jpeg_start_compress(&image, TRUE);
  for (std::size_t y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + y * width * static_cast<std::size_t>(channels);
    jpeg_write_scanlines(&image, &row, 1);
  }
  jpeg_finish_compress(&image);
  jpeg_destroy_compress(&image);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

// Behind the start of the file.
inline std::string with_segment(const std::string& jpeg, int marker, const std::string& body) {
  const auto length = static_cast<std::uint32_t>(body.size() + 2);
  const std::string segment =
      std::string(1, '\xFF') + static_cast<char>(marker) + big_endian(length).substr(2) + body;
  return jpeg.substr(0, 2) + segment + jpeg.substr(2);
}

// A TIFF block of one entry.
inline std::string exif_block(int orientation) {
  return std::string("II*\0", 4) + little_endian(8) + little_endian(1, 2) +
         little_endian(0x0112, 2) + little_endian(3, 2) + little_endian(1) +
         little_endian(static_cast<std::uint32_t>(orientation)) + little_endian(0);
}

inline std::string webp_file(int width, int height, const std::vector<std::uint8_t>& rgb) {
  std::uint8_t* bytes = nullptr;
  const std::size_t size = WebPEncodeLosslessRGB(rgb.data(), width, height, 3 * width, &bytes);
  std::string file(reinterpret_cast<char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

// The header of an extended file that says it is animated, in front of its image.
inline std::string animated(const std::string& webp) {
  const std::string header =
      "VP8X" + little_endian(10) + little_endian(0x02) + little_endian(0, 3) + little_endian(0, 3);
  const std::string animation = "ANIM" + little_endian(6) + std::string(6, '\0');
  const std::string body = "WEBP" + header + animation + webp.substr(12);
  return "RIFF" + little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

inline std::string bmp_file(std::int32_t width, std::int32_t height, int bits,
                            const std::string& palette, const std::string& rows,
                            std::uint32_t compression = 0) {
  const auto offset = static_cast<std::uint32_t>(54 + palette.size());
  return "BM" + little_endian(offset + static_cast<std::uint32_t>(rows.size())) + little_endian(0) +
         little_endian(offset) + little_endian(40) +
         little_endian(static_cast<std::uint32_t>(width)) +
         little_endian(static_cast<std::uint32_t>(height)) + little_endian(1, 2) +
         little_endian(static_cast<std::uint32_t>(bits), 2) + little_endian(compression) +
         little_endian(0) + little_endian(0) + little_endian(0) +
         little_endian(static_cast<std::uint32_t>(palette.size() / 4)) + little_endian(0) +
         palette + rows;
}

}  // namespace steelyard::testing
