// Changes of an image's colours and places, each by one number. They are those of Pillow's
// ImageEnhance, ImageOps and Image.transform, to within one grey level (tests/reference).
#pragma once

#include <span>
#include <string_view>

#include "steelyard/framework/data/images/image.h"

namespace steelyard {

struct ImageEffect {
  std::string_view name;
  Image (*apply)(const Image& image, double amount);
};

// Factors of 1 change nothing; of 0: black; grey of the mean luma; grey; smoothed.
Image with_brightness(const Image& image, double factor);
Image with_contrast(const Image& image, double factor);
Image with_saturation(const Image& image, double factor);
Image with_sharpness(const Image& image, double factor);
// Turns the hue by a share of the circle, from -0.5 to 0.5, in steps of 1/255.
Image with_hue(const Image& image, double turn);

// About the centre, counterclockwise; bilinear, as the next four, and black where there was
// nothing.
Image rotated(const Image& image, double degrees);
// Output pixel (x, y) shows (x + amount * y, y), (x, y + amount * x).
Image sheared_x(const Image& image, double amount);
Image sheared_y(const Image& image, double amount);
// Output pixel (x, y) shows (x + pixels, y), (x, y + pixels).
Image translated_x(const Image& image, double pixels);
Image translated_y(const Image& image, double pixels);

// Bytes of at least `threshold` are inverted.
Image solarized(const Image& image, double threshold);
// Bytes keep this many of their upper bits.
Image posterized(const Image& image, double bits);
// Each channel is stretched to 0 and 255.
Image with_auto_contrast(const Image& image, double unused = 0);
// Each channel's histogram is made even.
Image equalized(const Image& image, double unused = 0);

// All of them by name.
std::span<const ImageEffect> image_effects();

}  // namespace steelyard
