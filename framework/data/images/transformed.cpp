#include "steelyard/framework/data/images/transformed.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "steelyard/framework/data/images/resize.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

Image centre_of(const Image& image, const std::array<std::int64_t, 2>& size) {
  const auto [height, width] = size;
  if (height > image.height || width > image.width) {
    throw InputError("expected an image of at least the " + size_text(height, width) +
                     " pixels of data.transforms.centre_crop, got " +
                     size_text(image.height, image.width) + ": resize before");
  }
  // Half a pixel goes to the even side, as torchvision rounds.
  const auto begin = [](std::int64_t room) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(room) / 2));
  };
  return cropped(image, {begin(image.height - height), begin(image.width - width), height, width});
}

// The longer side is rounded down, as torchvision does.
std::array<std::int64_t, 2> in_proportion(const Image& image, std::int64_t shorter) {
  const auto longer = [&](std::int64_t side, std::int64_t other) {
    return std::max(shorter, shorter * side / other);
  };
  if (image.height <= image.width) return {shorter, longer(image.width, image.height)};
  return {longer(image.height, image.width), shorter};
}

}  // namespace

std::string size_text(std::int64_t height, std::int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

Image transformed(const Image& image, const ImageTransforms& transforms) {
  const auto& crop = transforms.centre_crop;
  if (!transforms.resize && !transforms.resize_shorter) {
    return crop ? centre_of(image, *crop) : image;
  }
  const auto [height, width] =
      transforms.resize ? *transforms.resize : in_proportion(image, *transforms.resize_shorter);
  require_image_size(width, height);
  Image out = resized(image, height, width, transforms.interpolation);
  if (crop) out = centre_of(out, *crop);
  return out;
}

}  // namespace steelyard
