// PNG by libpng.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>

#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

// What libpng's functions work on. Its errors jump to where decode() says: nothing between that
// place and theirs may have a destructor, so that all state is here.
struct PngReader {
  std::string_view bytes;
  std::size_t at = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string error = {};
  DecodedImage result = {};
  std::vector<png_bytep> rows = {};

  PngReader() = default;
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp message) {
  static_cast<PngReader*>(png_get_error_ptr(png))->error = message;
  png_longjmp(png, 1);
}

void on_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader.bytes.size() - reader.at) png_error(png, "the file ends too early");
  std::memcpy(to, reader.bytes.data() + reader.at, count);
  reader.at += count;
}

bool read_header(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_info(reader.png, reader.info);
  return true;
}

// To 8 bits, without palettes and transparency; the values as they are stored, whatever gamma says.
bool prepare_rows(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  const png_byte type = png_get_color_type(reader.png, reader.info);
  png_set_scale_16(reader.png);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(reader.png);
  png_set_strip_alpha(reader.png);  // also what a palette's transparent colours become
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

bool read_rows(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, reader.rows.data());
  png_read_end(reader.png, reader.info);
  return true;
}

void require(bool done, const PngReader& reader) {
  if (!done) throw InputError("damaged PNG image: " + printable(reader.error));
}

void allocate_rows(PngReader& reader) {
  Image& image = reader.result.image;
  image.channels = png_get_channels(reader.png, reader.info);
  const std::size_t row = png_get_rowbytes(reader.png, reader.info);
  if ((image.channels != 1 && image.channels != 3) ||
      row != static_cast<std::size_t>(image.width * image.channels)) {
    throw InputError("PNG image of a kind that is not known: " + std::to_string(image.channels) +
                     " channels");
  }
  image.pixels.resize(static_cast<std::size_t>(image.height) * row);
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    reader.rows.push_back(image.pixels.data() + y * row);
  }
}

}  // namespace

DecodedImage decode_png(std::string_view bytes) {
  PngReader reader;
  reader.bytes = bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error, on_warning);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw InputError("libpng: it could not be started");
  png_set_read_fn(reader.png, &reader, read_bytes);
  // Texts and profiles may be packed by a thousand times.
  constexpr png_alloc_size_t kMaxChunkBytes = png_alloc_size_t{1} << 23;
  constexpr png_uint_32 kMaxChunks = 1000;
  png_set_chunk_malloc_max(reader.png, kMaxChunkBytes);
  png_set_chunk_cache_max(reader.png, kMaxChunks);
  png_set_user_limits(reader.png, kMaxImagePixels, kMaxImagePixels);
  require(read_header(reader), reader);
  Image& image = reader.result.image;
  image.height = png_get_image_height(reader.png, reader.info);
  image.width = png_get_image_width(reader.png, reader.info);
  require_image_size(image.width, image.height);
  require(prepare_rows(reader), reader);
  allocate_rows(reader);
  require(read_rows(reader), reader);
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 exif_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &exif_bytes, &exif) != 0) {
    reader.result.orientation = exif_orientation({reinterpret_cast<const char*>(exif), exif_bytes});
  }
#endif
  return std::move(reader.result);
}

}  // namespace steelyard
