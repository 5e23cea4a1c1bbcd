// How images of differing sizes become samples of one size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/images/image.h"
#include "steelyard/framework/data/images/transformed.h"  // IWYU pragma: export
#include "steelyard/framework/data/sample_source.h"

namespace steelyard {

// A random part of the image in the size that transforms give; draws at most 60 words. (Szegedy et
// al., arXiv:1409.4842, section 6: up to ten tries, then the centre.)
Image random_resized_crop(const Image& image, const ImageTransforms& transforms, Rng& random);

// Images that are decoded when they are asked for.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  // Thread-safe; with `channels` of 1 or 3. `digest`, where it is not null, is set to the digest of
  // the content. Throws InputError that names the file.
  virtual Image image(std::int64_t index, std::int64_t channels,
                      std::string* digest = nullptr) const = 0;
  virtual std::string name(std::int64_t index) const = 0;
  virtual std::string raw_name(std::int64_t index) const { return name(index); }
  // As SampleSource's.
  virtual std::string content_digest(std::int64_t index) const = 0;
};

// Samples u8 [H, W, C] of images. Without a size in `transforms` all images have that of `shape`,
// or without one that of the first that can be read. Throws InputError where none of the first few
// can.
std::shared_ptr<const SampleSource> image_samples(std::shared_ptr<const ImageSource> images,
                                                  const ImageTransforms& transforms,
                                                  const std::optional<Shape>& shape = {});

// u8 samples [H, W, 1 or 3] of one size, transformed. Throws InputError for others.
std::shared_ptr<const SampleSource> transformed_samples(std::shared_ptr<const SampleSource> samples,
                                                        const ImageTransforms& transforms);

}  // namespace steelyard
