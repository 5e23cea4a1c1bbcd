#include "steelyard/framework/data/images/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace steelyard {
namespace {

// A byte times the sum of absolute weights, at most 1.3 for the bicubic filter, fits 31 bits.
constexpr int kWeightBits = 22;

double bilinear(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// R. Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -1/2.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// What an output pixel of a line is the sum of: input pixels from `first` on.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to, Interpolation interpolation) {
  const bool cubic = interpolation == Interpolation::kBicubic;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * stretch;
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Taps taps;
    taps.first = static_cast<std::int64_t>(std::max(0.0, std::floor(centre - support + 0.5)));
    const std::int64_t end =
        std::min(from, static_cast<std::int64_t>(std::floor(centre + support + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t x = taps.first; x < end; ++x) {
      const double distance = (static_cast<double>(x) + 0.5 - centre) / stretch;
      weights.push_back(cubic ? bicubic(distance) : bilinear(distance));
      sum += weights.back();
    }
    for (const double weight : weights) {
      taps.weights.push_back(
          static_cast<std::int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t byte_of(std::int32_t sum) {
  constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);
  return static_cast<std::uint8_t>(std::clamp((sum + kHalf) >> kWeightBits, 0, 255));
}

// Each row by itself.
template <std::size_t kChannels>
void resize_rows(const Image& image, const std::vector<Taps>& all, std::uint8_t* to) {
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* row = image.pixels.data() + y * image.width * image.channels;
    for (const Taps& taps : all) {
      const std::uint8_t* from = row + taps.first * image.channels;
      std::array<std::int32_t, kChannels> sums = {};
      for (const std::int32_t weight : taps.weights) {
        for (std::size_t c = 0; c < kChannels; ++c) sums[c] += weight * from[c];
        from += kChannels;
      }
      for (const std::int32_t sum : sums) *to++ = byte_of(sum);
    }
  }
}

Image resized_width(const Image& image, std::int64_t width, Interpolation interpolation) {
  const std::vector<Taps> all = taps_of(image.width, width, interpolation);
  Image out{image.height, width, image.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(out.height * width * image.channels));
  if (image.channels == 1) {
    resize_rows<1>(image, all, out.pixels.data());
  } else {
    resize_rows<3>(image, all, out.pixels.data());
  }
  return out;
}

// Whole rows are added, with one weight each.
Image resized_height(const Image& image, std::int64_t height, Interpolation interpolation) {
  const auto row = static_cast<std::size_t>(image.width * image.channels);
  Image out{height, image.width, image.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(height) * row);
  std::vector<std::int32_t> sums(row);
  std::uint8_t* to = out.pixels.data();
  for (const Taps& taps : taps_of(image.height, height, interpolation)) {
    std::fill(sums.begin(), sums.end(), 0);
    const std::uint8_t* from = image.pixels.data() + static_cast<std::size_t>(taps.first) * row;
    for (const std::int32_t weight : taps.weights) {
      for (std::size_t i = 0; i < row; ++i) sums[i] += weight * from[i];
      from += row;
    }
    to = std::transform(sums.begin(), sums.end(), to, byte_of);
  }
  return out;
}

}  // namespace

Image cropped(const Image& image, const ImageBox& box) {
  Image out{box.height, box.width, image.channels, {}};
  const auto row = static_cast<std::size_t>(box.width * image.channels);
  out.pixels.reserve(static_cast<std::size_t>(box.height) * row);
  for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
    const std::uint8_t* from = image.pixels.data() + (y * image.width + box.left) * image.channels;
    out.pixels.insert(out.pixels.end(), from, from + row);
  }
  return out;
}

Image resized(const Image& image, std::int64_t height, std::int64_t width,
              Interpolation interpolation) {
  Image out = image.width == width ? image : resized_width(image, width, interpolation);
  return out.height == height ? out : resized_height(out, height, interpolation);
}

}  // namespace steelyard
