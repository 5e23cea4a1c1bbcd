// Windows bitmaps without compression.
// Source: https://learn.microsoft.com/windows/win32/gdi/bitmap-storage, BITMAPINFOHEADER.
#include <cstdlib>
#include <string>

#include "steelyard/framework/data/images/decoders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::size_t kFileHeaderBytes = 14;
constexpr std::size_t kInfoHeaderBytes = 40;

class Bitmap {
 public:
  explicit Bitmap(std::string_view bytes) : bytes_(bytes) {
    require(bytes.size() >= kFileHeaderBytes + kInfoHeaderBytes, "the file ends in its header");
    pixels_ = u32(10);
    const std::uint32_t header = u32(kFileHeaderBytes);
    require(header >= kInfoHeaderBytes && header < bytes.size(),
            "a header of " + std::to_string(header) + " bytes");
    palette_ = kFileHeaderBytes + header;
    width_ = static_cast<std::int32_t>(u32(18));
    height_ = static_cast<std::int32_t>(u32(22));
    bits_ = u32(28) & 0xFFFF;
    const std::uint32_t compression = u32(30);
    const bool plain_masks = compression == 3 && bits_ == 32 && u32(54) == 0xFF0000 &&
                             u32(58) == 0xFF00 && u32(62) == 0xFF;
    require(compression == 0 || plain_masks,
            "compression " + std::to_string(compression) + " is not read");
    require(bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 24 || bits_ == 32,
            std::to_string(bits_) + " bits per pixel are not read");
    require_image_size(width_, std::abs(height_));
    colours_ = u32(46) != 0 ? u32(46) : std::uint32_t{1} << std::min(bits_, 8U);
    stride_ = (static_cast<std::size_t>(width_) * bits_ + 31) / 32 * 4;
    const auto rows = static_cast<std::size_t>(std::abs(height_));
    require(pixels_ <= bytes.size() && stride_ <= (bytes.size() - pixels_) / rows,
            "expected " + std::to_string(stride_ * rows) + " bytes of pixels, the file ends");
  }

  Image image() const {
    const std::int64_t height = std::abs(height_);
    Image image{height, width_, 3, {}};
    image.pixels.reserve(static_cast<std::size_t>(height * width_) * 3);
    for (std::int64_t y = 0; y < height; ++y) {
      // A height above 0 says that the lowest row comes first.
      const auto stored = static_cast<std::size_t>(height_ > 0 ? height - 1 - y : y);
      const std::size_t row = pixels_ + stored * stride_;
      for (std::size_t x = 0; x < static_cast<std::size_t>(width_); ++x) append(row, x, image);
    }
    return image;
  }

 private:
  static void require(bool holds, const std::string& what) {
    if (!holds) throw InputError("damaged or unknown BMP image: " + what);
  }

  void append(std::size_t row, std::size_t x, Image& image) const {
    std::size_t at = row + x * bits_ / 8;
    if (bits_ <= 8) {
      const std::size_t shift = 8 - bits_ - x * bits_ % 8;
      const std::uint32_t index = u8(at) >> shift & ((1U << bits_) - 1);
      at = palette_ + std::size_t{index} * 4;
      require(index < colours_ && at + 3 <= bytes_.size(),
              "colour " + std::to_string(index) + " of a palette of " + std::to_string(colours_));
    }
    for (const std::size_t channel : {2, 1, 0}) {
      image.pixels.push_back(static_cast<std::uint8_t>(u8(at + channel)));
    }
  }

  std::uint32_t u8(std::size_t at) const {
    return at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : 0;
  }
  std::uint32_t u32(std::size_t at) const {
    return u8(at) | u8(at + 1) << 8 | u8(at + 2) << 16 | u8(at + 3) << 24;
  }

  std::string_view bytes_;
  std::size_t pixels_ = 0;
  std::size_t palette_ = 0;
  std::int64_t width_ = 0;
  std::int64_t height_ = 0;
  std::uint32_t bits_ = 0;
  std::uint32_t colours_ = 0;
  std::size_t stride_ = 0;
};

}  // namespace

DecodedImage decode_bmp(std::string_view bytes) { return {Bitmap(bytes).image(), 1}; }

}  // namespace steelyard
