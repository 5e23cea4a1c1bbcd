// The elements of a SetMap in their order, one set after another or together, without a division
// for each run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/quant_plan/quant_layout.h"

namespace steelyard::kernels {

// Walks a map in logical order, run by run: parts that lie in one set. Divides only where it
// starts; most steps are those within a row, whose runs have consecutive sets.
class SetWalker {
 public:
  SetWalker(const SetMap& map, std::int64_t index) : map_(map), axes_(map.rank - 1) {
    row_ = map.size[axes_];
    run_ = map.block[axes_];
    if (run_ >= row_ && axes_ > 0) {  // a whole last axis: runs are blocks of the axis before it
      --axes_;
      run_ = map.block[axes_] * row_;
      row_ *= map.size[axes_];
    }
    at_ = index % row_;
    index /= row_;
    left_ = std::min(run_ - at_ % run_, row_ - at_);
    std::int64_t stride = (row_ + run_ - 1) / run_;
    for (int axis = axes_ - 1; axis >= 0; --axis) {
      Axis& walked = outer_[axis];
      walked.at = index % map.size[axis];
      walked.into_block = walked.at % map.block[axis];
      walked.stride = stride;
      walked.set = walked.at / map.block[axis] * stride;
      row_set_ += walked.set;
      index /= map.size[axis];
      stride *= map.blocks(axis);
    }
    set_ = row_set_ + at_ / run_;
  }

  std::int64_t set() const { return set_; }
  // Elements from here to the end of the run.
  std::int64_t length() const { return left_; }
  // Whole runs of one length from here on, as many as fit the row and `count` elements.
  std::int64_t whole_runs(std::int64_t count) const {
    return left_ < run_ ? 0 : std::min(count, row_ - at_) / run_;
  }
  // Moves on by at least one of whole_runs().
  void advance_runs(std::int64_t runs) {
    at_ += (runs - 1) * run_;
    set_ += runs - 1;
    advance(run_);
  }
  // Moves on by at most length() elements.
  void advance(std::int64_t count) {
    at_ += count;
    left_ -= count;
    if (left_ > 0) return;
    if (at_ < row_) {
      ++set_;
      left_ = std::min(run_, row_ - at_);
    } else {
      next_row();
    }
  }

 private:
  struct Axis {
    std::int64_t at;          // coordinate
    std::int64_t into_block;  // at % block
    std::int64_t stride;      // in sets, of a block
    std::int64_t set;         // at / block * stride
  };

  void next_row() {
    for (int axis = axes_ - 1; axis >= 0; --axis) {
      Axis& walked = outer_[axis];
      ++walked.at;
      ++walked.into_block;
      if (walked.at < map_.size[axis]) {
        if (walked.into_block == map_.block[axis]) {
          walked.into_block = 0;
          walked.set += walked.stride;
          row_set_ += walked.stride;
        }
        break;
      }
      row_set_ -= walked.set;
      walked.at = walked.into_block = walked.set = 0;
    }
    at_ = 0;
    left_ = std::min(run_, row_);
    set_ = row_set_;
  }

  const SetMap& map_;
  int axes_;                            // outside a row
  std::int64_t row_ = 0, run_ = 0;      // elements
  std::int64_t at_ = 0, left_ = 0;      // in the row; to the end of the run
  std::int64_t row_set_ = 0, set_ = 0;  // the row's first set, and the run's
  Axis outer_[kMaxRank * 2];
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

}  // namespace steelyard::kernels
