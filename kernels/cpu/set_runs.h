// Walks a range of logical indices in runs whose quantization parameters vectorize.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/set_walker.h"
#include "steelyard/kernels/quant_plan/quant_layout.h"

namespace steelyard::kernels {

// How a map is walked: in runs of one parameter set where these are long, otherwise, for channels,
// in runs of a tile, which is a whole number of periods (channels * inner elements) and at least
// kMinTile long.
class RunPlan {
 public:
  static constexpr std::int64_t kMinTile = 256;
  static constexpr std::int64_t kLongRun = 64;
  static constexpr std::int64_t kSmallTile = 2048;

  explicit RunPlan(const SetMap& map) : map_(map) {
    const ChannelLayout layout = map.as_channels();
    if (layout.channels <= 1 || layout.inner >= kLongRun) return;
    // A tile costs as much memory as it has elements: worth it where it stays in the first-level
    // cache or its runs are a few elements. Planes of 7 x 7 of 64 channels are faster in pieces.
    const std::int64_t period = layout.channels * layout.inner;
    if (period <= kSmallTile || (layout.inner < 8 && layout.outer > 1)) tile(period);
  }

  // Rows of channels, always in tiles.
  static RunPlan tiles_of_rows(std::int64_t rows, std::int64_t channels) {
    RunPlan plan(make_set_map(ChannelLayout{std::max<std::int64_t>(1, rows), channels, 1}));
    plan.tile(channels);
    return plan;
  }
  bool single() const { return map_.sets == 1 && !tiled(); }
  // True where runs of one set are long enough to be worth a loop of their own.
  bool has_long_runs() const { return map_.sets == 1 || map_.block[map_.rank - 1] >= kLongRun; }
  bool tiled() const { return tile_ > 0; }
  std::int64_t tile() const { return tile_; }
  // Elements of a tile until its sets repeat; they are in order, equally many of each.
  std::int64_t period() const { return period_; }
  const SetMap& map() const { return map_; }

  // Calls run(first, count, slot) on consecutive parts of [begin, end): each lies in one set, which
  // is its slot, or in one tile when tiled(), in which it begins at its slot.
  template <typename Run>
  void for_each(std::int64_t begin, std::int64_t end, Run&& run) const {
    if (begin >= end) return;
    if (tiled()) {
      for (std::int64_t slot = begin % tile_; begin < end; slot = 0) {
        const std::int64_t count = std::min(end - begin, tile_ - slot);
        run(begin, count, slot);
        begin += count;
      }
      return;
    }
    if (map_.sets == 1) {
      run(begin, end - begin, std::int64_t{0});
      return;
    }
    SetWalker walker(map_, begin);
    while (begin < end) {
      const std::int64_t count = std::min(end - begin, walker.length());
      run(begin, count, walker.set());
      walker.advance(count);
      begin += count;
    }
  }

 private:
  void tile(std::int64_t period) {
    if (period == 0) return;
    period_ = period;
    tile_ = period * ((kMinTile + period - 1) / period);
  }

  SetMap map_;
  std::int64_t tile_ = 0, period_ = 0;
};

// values[set(i)] for every i of a tile.
template <typename To, typename From>
KeptVector<To> tile_values(const RunPlan& plan, const From* values) {
  KeptVector<To> tiled(static_cast<std::size_t>(plan.tile()), To(0));
  const std::int64_t of_set = plan.period() / plan.map().sets;
  if (of_set == 1) {
    std::copy_n(values, plan.period(), tiled.begin());
  } else {
    for (std::int64_t i = 0; i < plan.period(); i += of_set) {
      std::fill_n(tiled.begin() + i, of_set, static_cast<To>(values[i / of_set]));
    }
  }
  for (std::int64_t i = plan.period(); i < plan.tile(); ++i) tiled[i] = tiled[i - plan.period()];
  return tiled;
}

// Parameters of a run: the same for every element, or one per element; from(i) are those from
// element i on. A loop over a run takes them by reference, and begins with a copy, from(0): codes
// and masks are bytes, which might alias anything else. Passed by value, a struct is copied as one
// vector, whose load waits until all of its members' stores are done: of 20 ns for 16 elements with
// learned scales this wait was 10.
template <typename T>
struct UniformParams {
  CodeGrid<T> value;
  UniformParams from(std::int64_t) const { return {(*this)[0]}; }
  // Member by member: GCC 12 does not vectorize around the copy of a whole struct.
  CodeGrid<T> operator[](std::int64_t) const {
    return {value.scale, value.zero_point, value.qmin, value.qmax};
  }
};
template <typename T>
struct ElementParams {
  const T* scale;
  const T* zero_point;
  T qmin;
  T qmax;
  ElementParams from(std::int64_t i) const { return {scale + i, zero_point + i, qmin, qmax}; }
  CodeGrid<T> operator[](std::int64_t i) const { return {scale[i], zero_point[i], qmin, qmax}; }
};

// The quantization parameters of a map, arranged for its runs. A null zero_point means 0.
template <typename T>
class SetParams {
 public:
  SetParams(const SetMap& map, CodeRange range, const T* scale, const std::int32_t* zero_point)
      : plan_(map), range_(range), scale_(scale), zero_point_(zero_point) {
    if (!plan_.tiled()) return;
    tiled_scale_ = tile_values<T>(plan_, scale);
    tiled_zero_point_ = zero_point == nullptr ? KeptVector<T>(tiled_scale_.size(), T(0))
                                              : tile_values<T>(plan_, zero_point);
  }

  // How much write_block() should ask for at once: entering a run of several sets costs
  // divisions.
  std::int64_t chunk_bytes() const { return plan_.single() ? kSmallChunkBytes : kMaxChunkBytes; }

  // Calls run(first, count, params) over [begin, end); params[i] belongs to element first + i.
  template <typename Run>
  void for_each_run(std::int64_t begin, std::int64_t end, Run&& run) const {
    if (!plan_.tiled() && !plan_.has_long_runs()) return for_each_piece(begin, end, run);
    plan_.for_each(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t slot) {
      if (plan_.tiled()) {
        run(first, count, of_elements(tiled_scale_.data() + slot, tiled_zero_point_.data() + slot));
      } else {
        run(first, count, of_set(slot));
      }
    });
  }

  // The parameters of one set.
  UniformParams<T> of_set(std::int64_t set) const {
    const std::int32_t zero_point = zero_point_ == nullptr ? 0 : zero_point_[set];
    return {make_code_grid(range_, scale_[set], zero_point)};
  }

  ElementParams<T> of_elements(const T* scale, const T* zero_point) const {
    return {scale, zero_point, static_cast<T>(range_.qmin), static_cast<T>(range_.qmax)};
  }

 private:
  // Short runs, several in one call: their parameters are repeated for each element.
  template <typename Run>
  void for_each_piece(std::int64_t begin, std::int64_t end, Run&& run) const {
    constexpr std::int64_t kPiece = 512;  // the repeated parameters stay in the first-level cache
    constexpr std::int64_t kWhole = 16;  // filling whole vectors is faster, the next run overwrites
    static_assert(RunPlan::kLongRun % kWhole == 0);
    alignas(kCacheLine) T scale[kPiece + kWhole];
    alignas(kCacheLine) T zero_point[kPiece + kWhole];
    SetWalker walker(plan_.map(), begin);
    for (; begin < end; begin += kPiece) {
      const std::int64_t stop = std::min(end, begin + kPiece);
      for (std::int64_t at = 0; at < stop - begin;) {
        const std::int64_t count = std::min(stop - begin - at, walker.length());
        const CodeGrid<T> p = of_set(walker.set()).value;
        for (std::int64_t done = 0; done < count; done += kWhole) {
          for (std::int64_t i = 0; i < kWhole; ++i) scale[at + done + i] = p.scale;
          for (std::int64_t i = 0; i < kWhole; ++i) zero_point[at + done + i] = p.zero_point;
        }
        walker.advance(count);
        at += count;
      }
      run(begin, stop - begin, of_elements(scale, zero_point));
    }
  }

  RunPlan plan_;
  CodeRange range_;
  const T* scale_;
  const std::int32_t* zero_point_;
  KeptVector<T> tiled_scale_;
  KeptVector<T> tiled_zero_point_;
};

}  // namespace steelyard::kernels
