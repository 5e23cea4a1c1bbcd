#include "steelyard/framework/data/images/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "steelyard/framework/data/images/resize.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

// The largest part in the centre whose width / height is within the limits.
ImageBox centre_box(const Image& image, const std::vector<double>& ratio) {
  ImageBox box{0, 0, image.height, image.width};
  const double own = static_cast<double>(image.width) / static_cast<double>(image.height);
  if (own < ratio[0]) {
    box.height = std::clamp<std::int64_t>(rounded(static_cast<double>(image.width) / ratio[0]), 1,
                                          image.height);
  } else if (own > ratio[1]) {
    box.width = std::clamp<std::int64_t>(rounded(static_cast<double>(image.height) * ratio[1]), 1,
                                         image.width);
  }
  box.top = (image.height - box.height) / 2;
  box.left = (image.width - box.width) / 2;
  return box;
}

ImageBox random_box(const Image& image, const ImageTransforms& transforms, Rng& random) {
  constexpr int kTries = 10;
  const auto between = [&](double low, double high) {
    return low + (high - low) * random.uniform();
  };
  const double least = transforms.random_area[0], most = transforms.random_area[1];
  const double narrow = transforms.random_ratio[0], wide = transforms.random_ratio[1];
  const double area = static_cast<double>(image.height) * static_cast<double>(image.width);
  for (int i = 0; i < kTries; ++i) {
    const double part = area * between(least, most);
    const double ratio = std::exp(between(std::log(narrow), std::log(wide)));
    const std::int64_t width = rounded(std::sqrt(part * ratio));
    const std::int64_t height = rounded(std::sqrt(part / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const auto place = [&](std::int64_t room) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room) + 1));
    };
    const std::int64_t top = place(image.height - height);
    return {top, place(image.width - width), height, width};
  }
  return centre_box(image, transforms.random_ratio);
}

class ImageSamples : public SampleSource {
 public:
  ImageSamples(std::shared_ptr<const ImageSource> images, const ImageTransforms& transforms,
               const std::optional<Shape>& shape)
      : images_(std::move(images)), transforms_(transforms) {
    const std::int64_t channels = transforms.channels();
    if (const auto size = transforms.size()) {
      shape_ = {(*size)[0], (*size)[1], channels};
    } else if (shape) {
      shape_ = *shape;
      size_from_ = "the model takes";
    } else {
      shape_ = shape_of_first();
    }
  }

  std::int64_t size() const override { return images_->size(); }
  DType dtype() const override { return DType::kU8; }
  const Shape& shape() const override { return shape_; }
  bool draws() const override { return transforms_.size().has_value(); }
  bool decodes() const override { return true; }
  std::string name(std::int64_t sample) const override { return images_->name(sample); }
  std::string raw_name(std::int64_t sample) const override { return images_->raw_name(sample); }
  std::optional<Image> stored_image(std::int64_t sample) const override {
    return images_->image(sample, shape_[2]);
  }
  std::string content_digest(std::int64_t sample) const override {
    return images_->content_digest(sample);
  }

  void read(std::int64_t sample, Rng* random, void* to) const override {
    const Image stored = images_->image(sample, shape_[2]);
    write(random != nullptr ? random_resized_crop(stored, transforms_, *random)
                            : transformed_or_named(stored, sample),
          sample, to);
  }

  SampleOrigin read_with_origin(std::int64_t sample, void* to) const override {
    SampleOrigin origin;
    const Image stored = images_->image(sample, shape_[2], &origin.digest);
    origin.image_size = {stored.height, stored.width};
    write(transformed_or_named(stored, sample), sample, to);
    return origin;
  }

 private:
  // The shape of the first image that can be read, of at most kMostTried: reading says what is
  // wrong with the others.
  Shape shape_of_first() const {
    constexpr std::int64_t kMostTried = 16;
    const std::int64_t channels = transforms_.channels();
    for (std::int64_t i = 0;; ++i) {
      try {
        const Image first = transformed(images_->image(i, channels), transforms_);
        return {first.height, first.width, channels};
      } catch (const InputError&) {
        if (i + 1 == std::min(size(), kMostTried)) throw;
      }
    }
  }

  void write(const Image& image, std::int64_t sample, void* to) const {
    if (image.height != shape_[0] || image.width != shape_[1]) {
      throw InputError(
          name(sample) + ": expected " + size_text(shape_[0], shape_[1]) + " pixels as " +
          size_from_ + ", got " + size_text(image.height, image.width) +
          " (data.transforms, or the option --resize where a command has it, makes them one size: "
          "resize, or resize_shorter with centre_crop)");
    }
    std::memcpy(to, image.pixels.data(), image.pixels.size());
  }

  Image transformed_or_named(const Image& image, std::int64_t sample) const {
    try {
      return transformed(image, transforms_);
    } catch (const InputError& error) {
      throw InputError(name(sample) + ": " + error.what());
    }
  }

  std::shared_ptr<const ImageSource> images_;
  ImageTransforms transforms_;
  Shape shape_;
  std::string size_from_ = "the first image has";
};

// Samples of one size as images.
class SampleImages : public ImageSource {
 public:
  explicit SampleImages(std::shared_ptr<const SampleSource> samples)
      : samples_(std::move(samples)) {}

  std::int64_t size() const override { return samples_->size(); }
  std::string name(std::int64_t index) const override { return samples_->name(index); }
  std::string content_digest(std::int64_t index) const override {
    return samples_->content_digest(index);
  }

  Image image(std::int64_t index, std::int64_t channels, std::string* digest) const override {
    const Shape& shape = samples_->shape();
    Image image{shape[0], shape[1], channels, {}};
    image.pixels.resize(static_cast<std::size_t>(sample_values(*samples_)));
    if (digest == nullptr) {
      samples_->read(index, nullptr, image.pixels.data());
    } else {
      *digest = samples_->read_with_origin(index, image.pixels.data()).digest;
    }
    return image;
  }

 private:
  std::shared_ptr<const SampleSource> samples_;
};

}  // namespace

Image random_resized_crop(const Image& image, const ImageTransforms& transforms, Rng& random) {
  const auto [height, width] = transforms.size().value();
  return resized(cropped(image, random_box(image, transforms, random)), height, width,
                 transforms.interpolation);
}

std::shared_ptr<const SampleSource> image_samples(std::shared_ptr<const ImageSource> images,
                                                  const ImageTransforms& transforms,
                                                  const std::optional<Shape>& shape) {
  return std::make_shared<ImageSamples>(std::move(images), transforms, shape);
}

std::shared_ptr<const SampleSource> transformed_samples(std::shared_ptr<const SampleSource> samples,
                                                        const ImageTransforms& transforms) {
  const Shape& shape = samples->shape();
  const bool fits =
      samples->dtype() == DType::kU8 && shape.size() == 3 && (shape[2] == 1 || shape[2] == 3);
  if (!fits) {
    throw InputError("data.transforms needs images u8 [H, W, 1 or 3], got " +
                     std::string(dtype_name(samples->dtype())) + " " + shape_string(shape));
  }
  if (transforms.grey && shape[2] != 1) {
    throw InputError("data.transforms.grey is for image files, got samples " + shape_string(shape));
  }
  ImageTransforms own = transforms;
  own.grey = shape[2] == 1;
  return image_samples(std::make_shared<SampleImages>(std::move(samples)), own);
}

}  // namespace steelyard
