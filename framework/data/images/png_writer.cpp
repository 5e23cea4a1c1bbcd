// Writing PNG by libpng.
#include <png.h>

#include <csetjmp>
#include <stdexcept>
#include <string>

#include "steelyard/framework/data/images/image.h"

namespace steelyard {
namespace {

// As PngReader of png.cpp: what lives while libpng's errors may jump.
struct PngWriter {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string file = {};
  std::vector<png_bytep> rows = {};

  PngWriter() = default;
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
};

void write_bytes(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<PngWriter*>(png_get_io_ptr(png))->file.append(reinterpret_cast<char*>(bytes), count);
}

bool write_image(PngWriter& writer, const Image& image) {
  if (setjmp(png_jmpbuf(writer.png)) != 0) return false;
  png_set_IHDR(writer.png, writer.info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8,
               image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(writer.png, writer.info);
  png_write_image(writer.png, writer.rows.data());
  png_write_end(writer.png, writer.info);
  return true;
}

}  // namespace

std::string encode_png(const Image& image) {
  PngWriter writer;
  writer.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  if (writer.png != nullptr) writer.info = png_create_info_struct(writer.png);
  if (writer.info == nullptr) throw std::runtime_error("libpng: it could not be started");
  png_set_write_fn(writer.png, &writer, write_bytes, nullptr);
  std::vector<std::uint8_t> pixels = image.pixels;  // libpng takes rows that it might change
  const auto row = static_cast<std::size_t>(image.width * image.channels);
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    writer.rows.push_back(pixels.data() + y * row);
  }
  if (!write_image(writer, image)) throw std::runtime_error("libpng: the image was not written");
  return std::move(writer.file);
}

}  // namespace steelyard
