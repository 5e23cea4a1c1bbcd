// JPEG by libjpeg-turbo, through the interface of libjpeg: TurboJPEG's knows fewer subsamplings.
#include <cstdio>  // before jpeglib.h, which needs it

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <string>

#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using namespace std::string_view_literals;

constexpr int kExifMarker = JPEG_APP0 + 1;

// What libjpeg's functions work on. Its errors jump to where the functions below say: nothing
// between that place and theirs may have a destructor, so that all state is here.
struct JpegReader {
  jpeg_error_mgr errors = {};  // libjpeg's functions find the reader by its first two members
  jpeg_decompress_struct image = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed = {};
  std::string error = {};
  std::vector<JSAMPROW> rows = {};
  std::vector<std::uint8_t> pixels = {};

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&image); }
};

JpegReader& reader_of(j_common_ptr image) { return *static_cast<JpegReader*>(image->client_data); }

void keep_message(j_common_ptr image) {
  char message[JMSG_LENGTH_MAX] = {};
  image->err->format_message(image, message);
  if (reader_of(image).error.empty()) reader_of(image).error = message;
}

void on_error(j_common_ptr image) {
  keep_message(image);
  std::longjmp(reader_of(image).failed, 1);
}

// Warnings after which the pixels are as they were written; cameras and editors cause them.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
         code == JWRN_NOT_SEQUENTIAL || code == JWRN_TOO_MUCH_DATA;
}

void on_message(j_common_ptr image, int level) {
  if (level < 0 && !is_harmless(image->err->msg_code)) on_error(image);
}

// A progressive file may have thousands of scans of the whole image.
void on_progress(j_common_ptr image) {
  constexpr int kMostScans = 500;
  JpegReader& reader = reader_of(image);
  if (reader.image.input_scan_number <= kMostScans) return;
  reader.error = "more than 500 scans";
  std::longjmp(reader.failed, 1);
}

bool read_header(JpegReader& reader, std::string_view bytes) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_decompress_struct& image = reader.image;
  jpeg_create_decompress(&image);
  jpeg_mem_src(&image, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&image, kExifMarker, 0xFFFF);
  jpeg_read_header(&image, TRUE);
  return true;
}

// As RGB, grey or CMYK.
bool begin_rows(JpegReader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_decompress_struct& image = reader.image;
  const J_COLOR_SPACE stored = image.jpeg_color_space;
  const bool inks = stored == JCS_CMYK || stored == JCS_YCCK;
  image.out_color_space = stored == JCS_GRAYSCALE ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
  reader.progress.progress_monitor = on_progress;
  image.progress = &reader.progress;
  jpeg_start_decompress(&image);
  return true;
}

bool read_rows(JpegReader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  jpeg_decompress_struct& image = reader.image;
  while (image.output_scanline < image.output_height) {
    jpeg_read_scanlines(&image, reader.rows.data() + image.output_scanline,
                        image.output_height - image.output_scanline);
  }
  jpeg_finish_decompress(&image);
  return true;
}

void require(bool done, const JpegReader& reader) {
  if (!done) throw InputError("damaged JPEG image: " + printable(reader.error));
}

int orientation_of(const jpeg_decompress_struct& image) {
  constexpr auto kExif = "Exif\0\0"sv;
  for (jpeg_saved_marker_ptr at = image.marker_list; at != nullptr; at = at->next) {
    const std::string_view body(reinterpret_cast<const char*>(at->data), at->data_length);
    if (body.starts_with(kExif)) return exif_orientation(body.substr(kExif.size()));
  }
  return 1;
}

// The RGB bytes of inks on white paper: each colour is what its ink leaves, times what black
// leaves.
std::vector<std::uint8_t> painted(const std::vector<std::uint8_t>& cmyk, bool inverted) {
  std::vector<std::uint8_t> rgb;
  rgb.reserve(cmyk.size() / 4 * 3);
  for (std::size_t i = 0; i < cmyk.size(); i += 4) {
    const auto left = [&](std::size_t c) -> std::uint32_t {
      return inverted ? cmyk[i + c] : 255U - cmyk[i + c];
    };
    for (std::size_t c = 0; c < 3; ++c) {
      rgb.push_back(static_cast<std::uint8_t>((left(c) * left(3) + 127) / 255));
    }
  }
  return rgb;
}

}  // namespace

DecodedImage decode_jpeg(std::string_view bytes) {
  JpegReader reader;
  reader.image.err = jpeg_std_error(&reader.errors);
  reader.image.client_data = &reader;
  reader.errors.error_exit = on_error;
  reader.errors.emit_message = on_message;
  require(read_header(reader, bytes), reader);
  const std::int64_t width = reader.image.image_width, height = reader.image.image_height;
  require_image_size(width, height);
  const int orientation = orientation_of(reader.image);  // markers are dropped at the end
  const bool adobe = reader.image.saw_Adobe_marker != FALSE;
  require(begin_rows(reader), reader);
  const std::int64_t channels = reader.image.output_components;
  const auto row = static_cast<std::size_t>(width * channels);
  reader.pixels.resize(static_cast<std::size_t>(height) * row);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    reader.rows.push_back(reader.pixels.data() + y * row);
  }
  require(read_rows(reader), reader);
  DecodedImage result{{height, width, channels, std::move(reader.pixels)}, orientation};
  if (channels == 4) {  // Adobe's programs store inks inverted
    result.image.pixels = painted(result.image.pixels, adobe);
    result.image.channels = 3;
  }
  return result;
}

bool have_image_libraries() { return true; }

}  // namespace steelyard
