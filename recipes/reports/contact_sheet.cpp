#include "steelyard/recipes/reports/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "steelyard/framework/data/images/resize.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kMostSheetClasses = 16;
constexpr std::int64_t kGap = 4;            // pixels
constexpr std::int64_t kSmallestTile = 64;  // smaller images are shown larger

std::vector<std::vector<std::int64_t>> samples_of_classes(const Dataset& train) {
  const bool labelled = train.targets.dtype() == DType::kI64 && train.targets.rank() == 1;
  const std::int64_t classes =
      labelled ? std::clamp<std::int64_t>(train.classes, 1, kMostSheetClasses) : 1;
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < train.size(); ++i) {
    const std::int64_t label = labelled ? train.targets.data<std::int64_t>()[i] : 0;
    if (label >= classes) continue;
    auto& row = rows[static_cast<std::size_t>(label)];
    if (std::ssize(row) < kColumns) row.push_back(i);
  }
  return rows;
}

// As a loader gives them, without normalization; f32 images are on the scale of 0 to 1.
std::vector<Image> images_of(const Dataset& train, LoaderOptions options,
                             const std::vector<std::int64_t>& samples) {
  options.batch_size = std::ssize(samples);
  options.normalization = {};
  // A batch of the epoch's order: augmentation depends on the samples' numbers.
  std::vector<std::int64_t> order = samples;
  order.resize(static_cast<std::size_t>(train.size()));
  const Tensor inputs = make_batch(train, options, order, 0, 0).inputs;
  const Shape shape = train.sample_shape();
  std::vector<Image> images;
  const auto values = static_cast<std::size_t>(shape[0] * shape[1] * shape[2]);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Image& image = images.emplace_back(Image{shape[0], shape[1], shape[2], {}});
    for (const float value : inputs.span<float>().subspan(i * values, values)) {
      image.pixels.push_back(
          static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0F, 1.0F) * 255)));
    }
  }
  return images;
}

void draw(const Image& image, std::int64_t scale, std::int64_t top, std::int64_t left,
          Image& sheet) {
  for (std::int64_t y = 0; y < image.height * scale; ++y) {
    for (std::int64_t x = 0; x < image.width * scale; ++x) {
      const std::uint8_t* from =
          image.pixels.data() + (y / scale * image.width + x / scale) * image.channels;
      std::copy_n(from, image.channels,
                  sheet.pixels.data() + ((top + y) * sheet.width + left + x) * sheet.channels);
    }
  }
}

// Nothing where samples are not made of images, or have the sizes of these.
std::vector<Image> stored_images(const Dataset& train, const std::vector<std::int64_t>& samples) {
  const auto source = samples_of(train);
  const Shape shape = train.sample_shape();
  std::vector<Image> images;
  bool same_size = true;
  for (const std::int64_t sample : samples) {
    std::optional<Image> image = source->stored_image(sample);
    if (!image) return {};
    same_size &= image->height == shape[0] && image->width == shape[1];
    images.push_back(*std::move(image));
  }
  return same_size ? std::vector<Image>() : images;
}

// In proportion, as large as a tile allows, in its middle.
Image fitted(const Image& image, std::int64_t height, std::int64_t width) {
  const double factor = std::min(static_cast<double>(height) / static_cast<double>(image.height),
                                 static_cast<double>(width) / static_cast<double>(image.width));
  const auto scaled = [&](std::int64_t side, std::int64_t most) {
    return std::clamp<std::int64_t>(std::llround(static_cast<double>(side) * factor), 1, most);
  };
  const Image small = resized(image, scaled(image.height, height), scaled(image.width, width),
                              Interpolation::kBilinear);
  Image tile{height, width, image.channels, {}};
  tile.pixels.assign(static_cast<std::size_t>(height * width * image.channels), 255);
  draw(small, 1, (height - small.height) / 2, (width - small.width) / 2, tile);
  return tile;
}

}  // namespace

Image contact_sheet(const Dataset& train, const LoaderOptions& options) {
  const Shape shape = train.sample_shape();
  if (shape.size() != 3 || (shape[2] != 1 && shape[2] != 3)) {
    throw InputError("expected images [H, W, 1 or 3] for a contact sheet, got samples " +
                     shape_string(shape));
  }
  const std::int64_t scale =
      std::max<std::int64_t>(1, kSmallestTile / std::max(shape[0], shape[1]));
  const std::int64_t tile_height = shape[0] * scale, tile_width = shape[1] * scale;
  LoaderOptions plain = options;
  plain.augment = {};
  std::vector<std::pair<std::vector<Image>, std::int64_t>> rows;  // with what they are scaled by
  for (const std::vector<std::int64_t>& samples : samples_of_classes(train)) {
    if (samples.empty()) continue;
    std::vector<Image> stored = stored_images(train, samples);
    for (Image& image : stored) image = fitted(image, tile_height, tile_width);
    if (!stored.empty()) rows.emplace_back(std::move(stored), 1);
    for (const LoaderOptions& view : {plain, options}) {
      rows.emplace_back(images_of(train, view, samples), scale);
    }
  }
  Image sheet{std::ssize(rows) * (tile_height + kGap) + kGap,
              kColumns * (tile_width + kGap) + kGap,
              shape[2],
              {}};
  sheet.pixels.assign(static_cast<std::size_t>(sheet.height * sheet.width * sheet.channels), 255);
  std::int64_t top = kGap;
  for (const auto& [images, factor] : rows) {
    std::int64_t left = kGap;
    for (const Image& image : images) {
      draw(image, factor, top, left, sheet);
      left += tile_width + kGap;
    }
    top += tile_height + kGap;
  }
  return sheet;
}

}  // namespace steelyard
