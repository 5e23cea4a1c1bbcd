#include "steelyard/framework/data/images/effects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace steelyard {
namespace {

using Byte = std::uint8_t;
using Lookup = std::array<Byte, 256>;

Byte clamped(double value) { return static_cast<Byte>(std::clamp(value, 0.0, 255.0)); }

// ITU-R BT.601 luma in 16 bits, rounded.
Byte luma(const Byte* rgb) {
  return static_cast<Byte>((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 0x8000U) >> 16U);
}

Byte grey_at(const Image& image, std::size_t pixel) {
  const Byte* at = image.pixels.data() + pixel * static_cast<std::size_t>(image.channels);
  return image.channels == 1 ? *at : luma(at);
}

std::size_t pixels_of(const Image& image) {
  return static_cast<std::size_t>(image.height * image.width);
}

// From what `base(i)` gives for byte i to the image, or beyond it: base + factor * (image - base).
template <typename F>
Image blended(const Image& image, double factor, const F& base) {
  Image out = image;
  for (std::size_t i = 0; i < out.pixels.size(); ++i) {
    const double from = base(i);
    out.pixels[i] = clamped(from + factor * (image.pixels[i] - from));
  }
  return out;
}

Image looked_up(const Image& image, const Lookup& table) {
  Image out = image;
  for (Byte& value : out.pixels) value = table[value];
  return out;
}

// A table of its own for each channel, made of its histogram.
template <typename F>
Image looked_up_by_channel(const Image& image, const F& table_of) {
  Image out = image;
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    std::array<std::int64_t, 256> counts{};
    for (std::size_t i = c; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
    const Lookup table = table_of(counts);
    for (std::size_t i = c; i < out.pixels.size(); i += channels)
      out.pixels[i] = table[out.pixels[i]];
  }
  return out;
}

Lookup unchanged() {
  Lookup table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<Byte>(i);
  return table;
}

// The 3 x 3 mean in which the centre counts five times; the border stays as it is.
Image smoothed(const Image& image) {
  Image out = image;
  const std::int64_t row = image.width * image.channels;
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    for (std::int64_t i = image.channels; i + image.channels < row; ++i) {
      const Byte* at = image.pixels.data() + y * row + i;
      int sum = 4 * *at;
      for (const std::int64_t dy : {-row, std::int64_t{0}, row}) {
        sum += at[dy - image.channels] + at[dy] + at[dy + image.channels];
      }
      out.pixels[static_cast<std::size_t>(y * row + i)] = clamped(sum / 13.0 + 0.5);
    }
  }
  return out;
}

// Hue, saturation and value of 8 bits each. Floats as Pillow's: a hue that falls on another step is
// another colour.
struct Hsv {
  Byte hue = 0, saturation = 0, value = 0;
};

Hsv hsv_of(const Byte* rgb) {
  const auto [least, most] = std::minmax({rgb[0], rgb[1], rgb[2]});
  if (least == most) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const auto away = [&](int c) { return static_cast<float>(most - rgb[c]) / range; };
  float sixth = 0;
  if (rgb[0] == most) {
    sixth = away(2) - away(1);
  } else if (rgb[1] == most) {
    sixth = static_cast<float>(2.0 + away(0) - away(2));
  } else {
    sixth = static_cast<float>(4.0 + away(1) - away(0));
  }
  const auto hue = static_cast<float>(std::fmod(sixth / 6.0 + 1.0, 1.0));
  const float saturation = range / static_cast<float>(most);
  return {clamped(std::floor(hue * 255.0)), clamped(std::floor(saturation * 255.0)), most};
}

void write_rgb(const Hsv& hsv, Byte* rgb) {
  if (hsv.saturation == 0) {
    std::fill_n(rgb, 3, hsv.value);
    return;
  }
  const double angle = static_cast<double>(hsv.hue) * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(angle));
  const double part = angle - sector, saturation = hsv.saturation / 255.0, value = hsv.value;
  const auto byte = [](double x) { return clamped(std::round(x)); };
  const Byte low = byte(value * (1 - saturation));
  const Byte falling = byte(value * (1 - saturation * part));
  const Byte rising = byte(value * (1 - saturation * (1 - part)));
  const std::array<std::array<Byte, 3>, 6> sectors{{{hsv.value, rising, low},
                                                    {falling, hsv.value, low},
                                                    {low, hsv.value, rising},
                                                    {low, falling, hsv.value},
                                                    {rising, low, hsv.value},
                                                    {hsv.value, low, falling}}};
  std::copy_n(sectors[static_cast<std::size_t>(sector % 6)].data(), 3, rgb);
}

// Output pixel centre (x, y) shows the input at (a x + b y + c, d x + e y + f).
struct PixelMap {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

Image moved(const Image& image, const PixelMap& m) {
  Image out{image.height, image.width, image.channels, {}};
  out.pixels.assign(image.pixels.size(), 0);
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  Byte* to = out.pixels.data();
  for (std::int64_t row = 0; row < image.height; ++row) {
    for (std::int64_t column = 0; column < image.width; ++column, to += image.channels) {
      const double x = static_cast<double>(column) + 0.5, y = static_cast<double>(row) + 0.5;
      const double from_x = m.a * x + m.b * y + m.c, from_y = m.d * x + m.e * y + m.f;
      if (!(from_x >= 0 && from_x < width && from_y >= 0 && from_y < height)) continue;
      // Between four pixels' centres, the border's repeated.
      const double left = std::floor(from_x - 0.5), top = std::floor(from_y - 0.5);
      const double dx = from_x - 0.5 - left, dy = from_y - 0.5 - top;
      const auto at = [&](std::int64_t step_y, std::int64_t step_x) {
        const auto v =
            std::clamp<std::int64_t>(static_cast<std::int64_t>(top) + step_y, 0, image.height - 1);
        const auto u =
            std::clamp<std::int64_t>(static_cast<std::int64_t>(left) + step_x, 0, image.width - 1);
        return image.pixels.data() + (v * image.width + u) * image.channels;
      };
      const Byte *p00 = at(0, 0), *p01 = at(0, 1), *p10 = at(1, 0), *p11 = at(1, 1);
      for (std::int64_t i = 0; i < image.channels; ++i) {
        const double upper = p00[i] + dx * (p01[i] - p00[i]);
        const double lower = p10[i] + dx * (p11[i] - p10[i]);
        to[i] = clamped(upper + dy * (lower - upper) + 0.5);
      }
    }
  }
  return out;
}

Lookup stretching(const std::array<std::int64_t, 256>& counts) {
  Lookup table = unchanged();
  std::size_t least = 0, most = 255;
  while (least < 255 && counts[least] == 0) ++least;
  while (most > 0 && counts[most] == 0) --most;
  if (most <= least) return table;
  const double scale = 255.0 / static_cast<double>(most - least);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = clamped(scale * (static_cast<double>(i) - static_cast<double>(least)));
  }
  return table;
}

// By the counts of smaller values; what the largest value has does not count.
Lookup evening(const std::array<std::int64_t, 256>& counts) {
  Lookup table = unchanged();
  std::int64_t all = 0, last = 0, values = 0;
  for (const std::int64_t count : counts) {
    all += count;
    if (count > 0) last = count;
    values += count > 0 ? 1 : 0;
  }
  const std::int64_t step = (all - last) / 255;
  if (values <= 1 || step == 0) return table;
  std::int64_t before = step / 2;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<Byte>(std::min<std::int64_t>(before / step, 255));
    before += counts[i];
  }
  return table;
}

constexpr std::array kEffects{
    ImageEffect{"brightness", with_brightness},
    ImageEffect{"contrast", with_contrast},
    ImageEffect{"saturation", with_saturation},
    ImageEffect{"sharpness", with_sharpness},
    ImageEffect{"hue", with_hue},
    ImageEffect{"rotate", rotated},
    ImageEffect{"shear_x", sheared_x},
    ImageEffect{"shear_y", sheared_y},
    ImageEffect{"translate_x", translated_x},
    ImageEffect{"translate_y", translated_y},
    ImageEffect{"solarize", solarized},
    ImageEffect{"posterize", posterized},
    ImageEffect{"auto_contrast", with_auto_contrast},
    ImageEffect{"equalize", equalized},
};

}  // namespace

std::span<const ImageEffect> image_effects() { return kEffects; }

Image with_brightness(const Image& image, double factor) {
  return blended(image, factor, [](std::size_t) { return 0; });
}

Image with_contrast(const Image& image, double factor) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < pixels_of(image); ++i) sum += grey_at(image, i);
  const double mean =
      std::floor(static_cast<double>(sum) / static_cast<double>(pixels_of(image)) + 0.5);
  return blended(image, factor, [&](std::size_t) { return mean; });
}

Image with_saturation(const Image& image, double factor) {
  if (image.channels == 1) return image;
  return blended(image, factor, [&](std::size_t i) { return grey_at(image, i / 3); });
}

Image with_sharpness(const Image& image, double factor) {
  const Image base = smoothed(image);
  return blended(image, factor, [&](std::size_t i) { return base.pixels[i]; });
}

Image with_hue(const Image& image, double turn) {
  if (image.channels == 1) return image;
  const int steps = static_cast<int>(turn * 255);
  Image out = image;
  for (std::size_t i = 0; i < out.pixels.size(); i += 3) {
    Hsv hsv = hsv_of(image.pixels.data() + i);
    hsv.hue = static_cast<Byte>((hsv.hue + steps) & 255);
    write_rgb(hsv, out.pixels.data() + i);
  }
  return out;
}

Image rotated(const Image& image, double degrees) {
  const double angle = -degrees * std::numbers::pi / 180;
  const double c = std::cos(angle), s = std::sin(angle);
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  return moved(image, {c, s, x - c * x - s * y, -s, c, y + s * x - c * y});
}

Image sheared_x(const Image& image, double amount) { return moved(image, {.b = amount}); }
Image sheared_y(const Image& image, double amount) { return moved(image, {.d = amount}); }
Image translated_x(const Image& image, double pixels) { return moved(image, {.c = pixels}); }
Image translated_y(const Image& image, double pixels) { return moved(image, {.f = pixels}); }

Image solarized(const Image& image, double threshold) {
  Lookup table = unchanged();
  for (Byte& value : table) value = value < threshold ? value : static_cast<Byte>(255 - value);
  return looked_up(image, table);
}

Image posterized(const Image& image, double bits) {
  const auto kept = static_cast<unsigned>(std::clamp(bits, 0.0, 8.0));
  Lookup table = unchanged();
  for (Byte& value : table) value = static_cast<Byte>(value & (0xFF00U >> kept & 0xFFU));
  return looked_up(image, table);
}

Image with_auto_contrast(const Image& image, double /*unused*/) {
  return looked_up_by_channel(image, stretching);
}

Image equalized(const Image& image, double /*unused*/) {
  return looked_up_by_channel(image, evening);
}

}  // namespace steelyard
