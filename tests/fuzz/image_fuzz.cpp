// An image file, decoded in colour and in grey, and transformed.
#include "steelyard/framework/data/images/image.h"

#include "steelyard/framework/data/images/transforms.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const std::string_view bytes = fuzz::view(data, size);
  // A small file may hold a large image: what that costs is no finding.
  constexpr std::int64_t kSmall = 1 << 20;
  for (const std::int64_t channels : {1, 3}) {
    fuzz::accepted([&] {
      const Image image = decode_image(bytes, channels, "f");
      const auto values = static_cast<std::size_t>(image.height * image.width * channels);
      fuzz::require(image.channels == channels && image.pixels.size() == values, "other pixels");
      if (image.pixels.size() > kSmall) return;
      fuzz::require(decode_image(bytes, channels, "f") == image, "decoded twice it differs");
      Rng random(1);
      const ImageTransforms transforms{.resize = {{3, 5}}};
      const auto expected = static_cast<std::size_t>(3 * 5 * channels);
      fuzz::require(transformed(image, transforms).pixels.size() == expected, "another size");
      fuzz::require(random_resized_crop(image, transforms, random).height == 3, "another height");
    });
  }
  return 0;
}
