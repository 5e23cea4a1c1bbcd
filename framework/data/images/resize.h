// Resizing of images, antialiased.
#pragma once

#include <cstdint>

#include "steelyard/framework/data/images/pixels.h"
#include "steelyard/framework/data/images/transform_options.h"  // IWYU pragma: export

namespace steelyard {

// The part of an image that is resized, in pixels.
struct ImageBox {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// The part at `box`, which lies in the image.
Image cropped(const Image& image, const ImageBox& box);

// The image in another size. Where it shrinks, the filter grows with the factor, so that every
// pixel counts (as Pillow's `resize` does and torchvision's with antialias=True; the bicubic one is
// Keys' with a = -1/2). Weights are rounded to 22 bits and sums are integers: the same on every
// machine.
Image resized(const Image& image, std::int64_t height, std::int64_t width,
              Interpolation interpolation);

}  // namespace steelyard
