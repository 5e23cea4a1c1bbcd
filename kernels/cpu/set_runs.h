// Walks a range of logical indices in runs whose quantization parameters vectorize.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/quant_layout.h"

namespace steelyard::kernels {

// Walks a map in logical order, run by run: parts of the last axis that lie in one set. Divides
// only where it starts.
class SetWalker {
 public:
  SetWalker(const SetMap& map, std::int64_t index) : map_(map) {
    std::int64_t stride = 1;
    for (int axis = map.rank - 1; axis >= 0; --axis) {
      Axis& walked = axes_[axis];
      walked.at = index % map.size[axis];
      walked.into_block = walked.at % map.block[axis];
      walked.stride = stride;
      walked.set = walked.at / map.block[axis] * stride;
      set_ += walked.set;
      index /= map.size[axis];
      stride *= map.blocks(axis);
    }
  }

  std::int64_t set() const { return set_; }
  // Elements from here to the end of the run.
  std::int64_t length() const {
    const int last = map_.rank - 1;
    return std::min(map_.size[last] - axes_[last].at, map_.block[last] - axes_[last].into_block);
  }
  // Moves on by at most length() elements.
  void advance(std::int64_t count) {
    for (int axis = map_.rank - 1;; --axis, count = 1) {
      Axis& walked = axes_[axis];
      walked.at += count;
      walked.into_block += count;
      if (walked.at < map_.size[axis]) {
        if (walked.into_block < map_.block[axis]) return;
        walked.into_block = 0;
        walked.set += walked.stride;
        set_ += walked.stride;
        return;
      }
      set_ -= walked.set;
      walked.at = walked.into_block = walked.set = 0;
      if (axis == 0) return;
    }
  }

 private:
  struct Axis {
    std::int64_t at;          // coordinate
    std::int64_t into_block;  // at % block
    std::int64_t stride;      // in sets, of a block
    std::int64_t set;         // at / block * stride
  };

  const SetMap& map_;
  std::int64_t set_ = 0;
  Axis axes_[kMaxRank * 2];
};

// Walks the elements of one set in logical order from element k on, run by run: parts whose
// elements follow each other. Divides only where it starts.
class SetElements {
 public:
  SetElements(const SetMap& map, std::int64_t set, std::int64_t k) : last_(map.rank - 1) {
    if (map.sets == 1) {
      last_ = 0;
      axes_[0] = {k, map.elements, 1};
      index_ = k;
      return;
    }
    std::int64_t stride = 1;
    for (int axis = last_; axis >= 0; --axis) {
      const std::int64_t start = set % map.blocks(axis) * map.block[axis];
      set /= map.blocks(axis);
      const std::int64_t extent = std::min(map.size[axis] - start, map.block[axis]);
      axes_[axis] = {k % extent, extent, stride};
      index_ += (start + k % extent) * stride;
      k /= extent;
      stride *= map.size[axis];
    }
  }

  std::int64_t index() const { return index_; }
  // Elements from here to the end of the run.
  std::int64_t length() const { return axes_[last_].extent - axes_[last_].at; }
  // Moves on by at most length() elements.
  void advance(std::int64_t count) {
    for (int axis = last_;; --axis, count = 1) {
      Axis& walked = axes_[axis];
      walked.at += count;
      index_ += count * walked.stride;
      if (walked.at < walked.extent || axis == 0) return;
      index_ -= walked.extent * walked.stride;
      walked.at = 0;
    }
  }

 private:
  struct Axis {
    std::int64_t at;      // coordinate within the set
    std::int64_t extent;  // of the set
    std::int64_t stride;  // in elements
  };

  int last_;
  std::int64_t index_ = 0;
  Axis axes_[kMaxRank * 2];
};

// Sets that follow each other, so many of them that they make a block or more, a whole number of
// mask bytes: no other set has one of their elements. sets = 0 where every set crosses the whole
// tensor.
struct SetParts {
  explicit SetParts(const SetMap& map) {
    if (map.elements == 0 || map.rank == 0 || map.block[0] >= map.size[0]) return;
    elements = map.block[0];
    sets = 1;
    for (int axis = 1; axis < map.rank; ++axis) {
      elements *= map.size[axis];
      sets *= map.blocks(axis);
    }
    std::int64_t together = std::max<std::int64_t>(1, kBlockElements / elements);
    while (together * elements % 8 != 0) ++together;
    elements *= together;
    sets *= together;
  }

  std::int64_t count(const SetMap& map) const { return (map.elements + elements - 1) / elements; }

  std::int64_t elements = 0;  // of a part; the last may have fewer
  std::int64_t sets = 0;
};

// How a map is walked: in runs of one parameter set where these are long, otherwise, for channels,
// in runs of a tile, which is a whole number of periods (channels * inner elements) and at least
// kMinTile long.
class RunPlan {
 public:
  static constexpr std::int64_t kMinTile = 256;
  static constexpr std::int64_t kLongRun = 64;
  static constexpr std::int64_t kSmallTile = 8192;

  explicit RunPlan(const SetMap& map) : map_(map) {
    const ChannelLayout layout = map.as_channels();
    if (layout.channels <= 1 || layout.inner >= kLongRun) return;
    // A tile costs as much memory as it has elements: worth it where it is small or used again.
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
  std::int64_t set(std::int64_t index) const { return map_.set_of(index); }
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
    if (period > 0) tile_ = period * ((kMinTile + period - 1) / period);
  }

  SetMap map_;
  std::int64_t tile_ = 0;
};

// values[set(i)] for every i of a tile.
template <typename To, typename From>
std::vector<To> tile_values(const RunPlan& plan, const From* values) {
  std::vector<To> tiled(static_cast<std::size_t>(plan.tile()));
  for (std::int64_t i = 0; i < plan.tile(); ++i) {
    tiled[i] = static_cast<To>(values[plan.set(i)]);
  }
  return tiled;
}

// Parameters of a run: the same for every element, or one per element; from(i) are those from
// element i on.
template <typename T>
struct UniformParams {
  Affine<T> value;
  UniformParams from(std::int64_t) const { return *this; }
  // Member by member: GCC 12 does not vectorize around the copy of a whole struct.
  Affine<T> operator[](std::int64_t) const {
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
  Affine<T> operator[](std::int64_t i) const { return {scale[i], zero_point[i], qmin, qmax}; }
};

// The quantization parameters of a map, arranged for its runs. A null zero_point means 0.
template <typename T>
class SetParams {
 public:
  SetParams(const SetMap& map, CodeRange range, const T* scale, const std::int32_t* zero_point)
      : plan_(map), range_(range), scale_(scale), zero_point_(zero_point) {
    if (!plan_.tiled()) return;
    tiled_scale_ = tile_values<T>(plan_, scale);
    tiled_zero_point_ = zero_point == nullptr ? std::vector<T>(tiled_scale_.size())
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
    return {make_affine(range_, scale_[set], zero_point)};
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
    for (; begin < end; begin += kPiece) {
      const std::int64_t stop = std::min(end, begin + kPiece);
      plan_.for_each(begin, stop, [&](std::int64_t first, std::int64_t count, std::int64_t set) {
        const Affine<T> p = of_set(set).value;
        const std::int64_t at = first - begin;
        for (std::int64_t done = 0; done < count; done += kWhole) {
          for (std::int64_t i = 0; i < kWhole; ++i) scale[at + done + i] = p.scale;
          for (std::int64_t i = 0; i < kWhole; ++i) zero_point[at + done + i] = p.zero_point;
        }
      });
      run(begin, stop - begin, of_elements(scale, zero_point));
    }
  }

  RunPlan plan_;
  CodeRange range_;
  const T* scale_;
  const std::int32_t* zero_point_;
  std::vector<T> tiled_scale_;
  std::vector<T> tiled_zero_point_;
};

}  // namespace steelyard::kernels
