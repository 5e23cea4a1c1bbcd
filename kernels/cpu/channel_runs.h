// Walks a flat range of a channel layout in runs whose parameters vectorise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/affine.h"
#include "kernels/cpu/blocks.h"
#include "kernels/layout.h"

namespace steelyard::kernels {

// How a layout is walked: in runs of one channel where these are long, otherwise in runs of a tile,
// which is a whole number of periods (channels * inner elements) and at least kMinTile long.
class RunPlan {
 public:
  static constexpr std::int64_t kMinTile = 256;
  static constexpr std::int64_t kLongRun = 64;

  explicit RunPlan(const ChannelLayout& layout)
      : RunPlan(layout, layout.channels > 1 && layout.inner < kLongRun) {}

  // Rows of channels, always in tiles.
  static RunPlan tiles_of_rows(std::int64_t rows, std::int64_t channels) {
    return RunPlan({rows, channels, 1}, true);
  }
  bool single() const { return layout_.channels == 1 && !tiled_; }
  bool tiled() const { return tiled_; }
  std::int64_t tile() const { return tile_; }
  std::int64_t channel(std::int64_t index) const {
    return layout_.channels == 1 ? 0 : (index / layout_.inner) % layout_.channels;
  }

  // Calls run(first, count) on consecutive parts of [begin, end): each lies in one channel, or in
  // one tile when tiled().
  template <typename Run>
  void for_each(std::int64_t begin, std::int64_t end, Run&& run) const {
    if (single()) {
      if (begin < end) run(begin, end - begin);
      return;
    }
    const std::int64_t length = tiled_ ? tile_ : layout_.inner;
    while (begin < end) {
      const std::int64_t stop = std::min(end, (begin / length + 1) * length);
      run(begin, stop - begin);
      begin = stop;
    }
  }

 private:
  RunPlan(const ChannelLayout& layout, bool tiled) : layout_(layout), tiled_(tiled) {
    const std::int64_t period = layout.channels * layout.inner;
    if (tiled && period > 0) tile_ = period * ((kMinTile + period - 1) / period);
  }

  ChannelLayout layout_;
  bool tiled_ = false;
  std::int64_t tile_ = 0;
};

// values[channel(i)] for every i of a tile.
template <typename To, typename From>
std::vector<To> tile_channels(const RunPlan& plan, const From* values) {
  std::vector<To> tiled(static_cast<std::size_t>(plan.tile()));
  for (std::int64_t i = 0; i < plan.tile(); ++i) {
    tiled[i] = static_cast<To>(values[plan.channel(i)]);
  }
  return tiled;
}

// Parameters of a run: the same for every element, or one per element.
template <typename T>
struct UniformParams {
  Affine<T> value;
  const Affine<T>& operator[](std::int64_t) const { return value; }
};
template <typename T>
struct ElementParams {
  const T* scale;
  const T* zero_point;
  T qmin;
  T qmax;
  Affine<T> operator[](std::int64_t i) const { return {scale[i], zero_point[i], qmin, qmax}; }
};

// The quantization parameters of a layout, arranged for its runs.
template <typename T>
class ChannelParams {
 public:
  ChannelParams(const ChannelLayout& layout, CodeRange range, const T* scale,
                const std::int32_t* zero_point)
      : plan_(layout), range_(range), scale_(scale), zero_point_(zero_point) {
    if (!plan_.tiled()) return;
    tiled_scale_ = tile_channels<T>(plan_, scale);
    tiled_zero_point_ = tile_channels<T>(plan_, zero_point);
  }

  // How much write_block() should ask for at once: entering a run of several channels costs
  // divisions.
  std::int64_t chunk_bytes() const { return plan_.single() ? kSmallChunkBytes : kMaxChunkBytes; }

  // Calls run(first, count, params) over [begin, end); params[i] belongs to element first + i.
  template <typename Run>
  void for_each_run(std::int64_t begin, std::int64_t end, Run&& run) const {
    plan_.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
      if (plan_.tiled()) {
        const std::int64_t offset = first % plan_.tile();
        run(first, count,
            ElementParams<T>{tiled_scale_.data() + offset, tiled_zero_point_.data() + offset,
                             static_cast<T>(range_.qmin), static_cast<T>(range_.qmax)});
      } else {
        const std::int64_t c = plan_.channel(first);
        run(first, count, UniformParams<T>{make_affine(range_, scale_[c], zero_point_[c])});
      }
    });
  }

 private:
  RunPlan plan_;
  CodeRange range_;
  const T* scale_;
  const std::int32_t* zero_point_;
  std::vector<T> tiled_scale_;
  std::vector<T> tiled_zero_point_;
};

}  // namespace steelyard::kernels
