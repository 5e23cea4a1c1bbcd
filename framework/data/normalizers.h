// y = (x - mean) / stddev of single values: in double, rounded once to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "steelyard/framework/data/normalization.h"

namespace steelyard {

// Normalises u8 through a table of 256 values per channel: no division per pixel.
class ByteNormalizer {
 public:
  using Value = std::uint8_t;

  ByteNormalizer(const Normalization& normalization, std::int64_t channels)
      : table_(static_cast<std::size_t>(channels) * 256) {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const bool none = normalization.mean.empty();
      const double mean = none ? 0.0 : normalization.mean[i / 256];
      const double stddev = none ? 1.0 : normalization.stddev[i / 256];
      table_[i] = static_cast<float>((static_cast<double>(i % 256) / 255.0 - mean) / stddev);
    }
  }

  float operator()(std::uint8_t value, std::int64_t channel) const {
    return table_[static_cast<std::size_t>(channel * 256 + value)];
  }

 private:
  std::vector<float> table_;
};

// In double, as bytes are: what programs that read an export are told to compute.
class FloatNormalizer {
 public:
  using Value = float;

  FloatNormalizer(const Normalization& normalization, std::int64_t channels)
      : mean_(normalization.mean.begin(), normalization.mean.end()),
        stddev_(normalization.stddev.begin(), normalization.stddev.end()) {
    if (mean_.empty()) mean_.assign(static_cast<std::size_t>(channels), 0.0);
    if (stddev_.empty()) stddev_.assign(static_cast<std::size_t>(channels), 1.0);
  }

  float operator()(float value, std::int64_t channel) const {
    const auto c = static_cast<std::size_t>(channel);
    return static_cast<float>((static_cast<double>(value) - mean_[c]) / stddev_[c]);
  }

 private:
  std::vector<double> mean_;
  std::vector<double> stddev_;
};

// Pixels or feature vectors: `count` groups of `channels` values.
template <typename Normalizer>
void normalize(const Normalizer& normalizer, const typename Normalizer::Value* in, float* out,
               std::int64_t count, std::int64_t channels) {
  if (channels == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = normalizer(in[i], 0);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      out[i * channels + c] = normalizer(in[i * channels + c], c);
    }
  }
}

}  // namespace steelyard
