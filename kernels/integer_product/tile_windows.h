// Where the operands of an output pixel lie. Private to this family's CPU products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/cpu/line_buffer.h"

namespace steelyard::kernels::tiled_products {

template <class Sums>
inline constexpr std::int64_t kColumns = 2 * Sums::kLanes;

// Images as [N, H + 2 pad, W + 2 pad, C].
struct Bordered {
  explicit Bordered(const Conv2dShape& s)
      : row((s.in_w + 2 * s.pad_w) * s.in_channels), image((s.in_h + 2 * s.pad_h) * row) {}

  std::int64_t row, image;  // elements
};

// Taps of a row of the kernel whose operands lie side by side in an image.
inline std::int64_t taps_of_run(const Conv2dShape& s) {
  return s.groups == 1 && s.dilation_w == 1 ? s.kernel_w : 1;
}

// The operands of an output pixel: runs that lie side by side in a bordered image, those of a row
// of the kernel where its columns touch each other, otherwise those of a tap. Long ones are cut.
// All runs have one length, a multiple of kTogether; operands beyond the last that has a weight are
// multiplied by 0.
template <class Sums>
class Windows {
 public:
  Windows(const Conv2dShape& s, const Bordered& images)
      : shape_(s), images_(images), taps_of_run_(taps_of_run(s)) {
    constexpr std::int64_t kTogether = Sums::kTogether;
    const std::int64_t taps = s.kernel_h * s.kernel_w;
    const std::int64_t whole = taps_of_run_ * s.in_channels_per_group();
    const std::int64_t cuts = (whole + kChunk - 1) / kChunk;
    length_ = (whole + kTogether * cuts - 1) / (kTogether * cuts) * kTogether;
    beyond_ = cuts * length_ - whole;
    for (std::int64_t tap = 0; tap < taps; tap += taps_of_run_) {
      const std::int64_t begin = tap / s.kernel_w * s.dilation_h * images.row +
                                 tap % s.kernel_w * s.dilation_w * s.in_channels;
      for (std::int64_t cut = 0; cut < cuts; ++cut) begins_.push_back(begin + cut * length_);
    }
  }

  // The operands of a chunk, whose weights for a tile of columns stay in the first-level cache.
  static constexpr std::int64_t kChunk =
      24576 / kColumns<Sums> / static_cast<std::int64_t>(sizeof(typename Sums::Weight));

  const Conv2dShape& shape() const { return shape_; }
  // Where the runs begin, counted from the first operand of a window.
  std::span<const std::int64_t> begins() const { return {begins_.data(), begins_.size()}; }
  std::int64_t length() const { return length_; }
  std::int64_t runs_of_chunk() const { return std::max<std::int64_t>(1, kChunk / length_); }
  // How many operands the last run of an image's last window may read beyond the image.
  std::int64_t beyond() const { return beyond_; }
  // Operands of all runs.
  std::int64_t operands() const { return std::ssize(begins()) * length_; }
  // Where, in the weights of an output, those of each kTogether operands begin, which lie KH * KW
  // apart; negative where these have none. Nothing where they belong to several taps.
  std::vector<std::int64_t> places_of_channels() const {
    const std::int64_t channels = shape_.in_channels_per_group();
    const std::int64_t taps = shape_.kernel_h * shape_.kernel_w;
    if (channels % Sums::kTogether != 0) return {};
    std::vector<std::int64_t> places;
    for (std::int64_t run = 0; run < taps; run += taps_of_run_) {
      for (std::int64_t i = 0; i < taps_of_run_ * channels + beyond_; i += Sums::kTogether) {
        const std::int64_t tap = run + i / channels;
        places.push_back(i < taps_of_run_ * channels ? i % channels * taps + tap : -1);
      }
    }
    return places;
  }
  // The weights of an output, [C/groups, KH, KW], in the order of the operands; 0 where an operand
  // has none.
  void put_in_order(const std::int8_t* weights, std::int8_t* to) const {
    const std::int64_t channels = shape_.in_channels_per_group();
    const std::int64_t taps = shape_.kernel_h * shape_.kernel_w;
    for (std::int64_t run = 0; run < taps; run += taps_of_run_) {
      for (std::int64_t tap = run; tap < run + taps_of_run_; ++tap, to += channels) {
        for (std::int64_t c = 0; c < channels; ++c) to[c] = weights[c * taps + tap];
      }
      to = std::fill_n(to, beyond_, std::int8_t{0});
    }
  }

  // The first operands of `count` windows of x, from that of output pixel `first` on.
  void find(const typename Sums::Operand* x, std::int64_t first, std::int64_t count,
            const typename Sums::Operand** starts) const {
    const std::int64_t line = first / shape_.out_w();
    std::int64_t image = line / shape_.out_h(), h = line % shape_.out_h();
    std::int64_t w = first % shape_.out_w();
    const std::int64_t step = shape_.stride_w * shape_.in_channels;
    for (std::int64_t done = 0; done < count; w = 0) {
      const auto* at = x + image * images_.image + h * shape_.stride_h * images_.row + w * step;
      for (; w < shape_.out_w() && done < count; ++w, at += step) starts[done++] = at;
      if (++h == shape_.out_h()) {
        h = 0;
        ++image;
      }
    }
  }

 private:
  const Conv2dShape& shape_;
  const Bordered& images_;
  std::int64_t taps_of_run_, length_ = 0, beyond_ = 0;
  KeptVector<std::int64_t> begins_;
};

}  // namespace steelyard::kernels::tiled_products
