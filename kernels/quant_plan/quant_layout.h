// Where the elements of a tensor lie and which parameter set quantizes each, host and device.
//
// Elements are numbered in row-major order of the shape (the logical index). A parameter set is one
// scale and one zero point; sets are numbered in row-major order of the grid of blocks. Every
// granularity is a block shape: the whole tensor, a slice of one axis, a row, a piece of a row, a
// rectangle of the last two axes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/granularity.h"
#include "steelyard/kernels/layout.h"

namespace steelyard::kernels {

inline constexpr int kMaxRank = 8;

// The last group of an axis may have fewer elements, and so may the last blocks.
struct GranularityOptions {
  int axis = -1;                // kChannel, kGroup; negative counts from the last
  std::int64_t group_size = 0;  // kGroup
  std::int64_t block_rows = 0;  // kBlock
  std::int64_t block_columns = 0;
};

// Logical index -> parameter set. Axes that need not be told apart are merged.
struct SetMap {
  int rank = 0;
  std::int64_t size[kMaxRank * 2] = {};
  std::int64_t block[kMaxRank * 2] = {};  // elements of the axis in one set; the last may be ragged
  std::int64_t elements = 0;
  std::int64_t sets = 0;

  STEELYARD_HOST_DEVICE std::int64_t blocks(int axis) const {
    return divide(size[axis] + block[axis] - 1, block[axis]);
  }
  STEELYARD_HOST_DEVICE std::int64_t set_of(std::int64_t index) const {
    if (sets == 1) return 0;
    std::int64_t set = 0;
    std::int64_t stride = 1;
    STEELYARD_ROLLED
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t above = divide(index, size[axis]);
      set += divide(index - above * size[axis], block[axis]) * stride;
      index = above;
      stride *= blocks(axis);
    }
    return set;
  }
  // The number of elements of a set.
  STEELYARD_HOST_DEVICE std::int64_t size_of(std::int64_t set) const {
    if (sets == 1 || elements == 0) return elements;
    std::int64_t count = 1;
    STEELYARD_ROLLED
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t above = divide(set, blocks(axis));
      const std::int64_t start = (set - above * blocks(axis)) * block[axis];
      set = above;
      count *= size[axis] - start < block[axis] ? size[axis] - start : block[axis];
    }
    return count;
  }
  // The logical index of element k of a set (k counts its elements in logical order).
  STEELYARD_HOST_DEVICE std::int64_t element_of(std::int64_t set, std::int64_t k) const {
    if (sets == 1) return k;
    std::int64_t index = 0;
    std::int64_t stride = 1;
    STEELYARD_ROLLED
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t above = divide(set, blocks(axis));
      const std::int64_t start = (set - above * blocks(axis)) * block[axis];
      set = above;
      const std::int64_t extent =
          size[axis] - start < block[axis] ? size[axis] - start : block[axis];
      const std::int64_t rest = divide(k, extent);
      index += (start + k - rest * extent) * stride;
      k = rest;
      stride *= size[axis];
    }
    return index;
  }
  // The size of the largest set.
  STEELYARD_HOST_DEVICE std::int64_t largest_set() const {
    if (elements == 0) return 0;
    std::int64_t count = 1;
    STEELYARD_ROLLED
    for (int axis = 0; axis < rank; ++axis) {
      count *= block[axis] < size[axis] ? block[axis] : size[axis];
    }
    return count;
  }

  // {outer, channels, inner} when the map is that simple, else channels = 0.
  ChannelLayout as_channels() const;
};

// Logical index -> offset in elements.
struct StrideMap {
  bool dense = true;  // offset == index
  int rank = 0;
  std::int64_t size[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};

  STEELYARD_HOST_DEVICE std::int64_t offset_of(std::int64_t index) const {
    if (dense) return index;
    std::int64_t offset = 0;
    STEELYARD_ROLLED
    for (int axis = rank - 1; axis >= 0; --axis) {
      offset += index % size[axis] * stride[axis];
      index /= size[axis];
    }
    return offset;
  }
};

// Throw std::invalid_argument saying what was expected and what was given.
SetMap make_set_map(std::span<const std::int64_t> shape, Granularity granularity,
                    const GranularityOptions& options = {});
// strides in elements, one per axis, negative ones too; empty means dense. No two elements may
// share memory: sorted by magnitude, each stride exceeds the span of the smaller ones.
StrideMap make_stride_map(std::span<const std::int64_t> shape,
                          std::span<const std::int64_t> strides);
SetMap make_set_map(const ChannelLayout& layout);

// "[8, 4, 3, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace steelyard::kernels
