#include "steelyard/kernels/quant_plan/quant_layout.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace steelyard::kernels {
namespace {

// Adds an axis inside the others, merged with its neighbour where both are whole or both single.
void append_axis(SetMap& map, std::int64_t size, std::int64_t block) {
  if (size == 1) return;
  const bool whole = block >= size;
  if (map.rank > 0) {
    std::int64_t& outer_size = map.size[map.rank - 1];
    std::int64_t& outer_block = map.block[map.rank - 1];
    if (whole && outer_block >= outer_size) {
      outer_size *= size;
      outer_block = std::max<std::int64_t>(1, outer_size);
      return;
    }
    if (!whole && block == 1 && outer_block == 1) {
      outer_size *= size;
      return;
    }
  }
  map.size[map.rank] = size;
  map.block[map.rank] = whole ? std::max<std::int64_t>(1, size) : block;
  ++map.rank;
}

// append_axis(), but an axis that divides into equal blocks becomes two axes: the blocks and the
// elements of a block.
void append_divided(SetMap& map, std::int64_t size, std::int64_t block) {
  if (block > 1 && block < size && size % block == 0) {
    append_axis(map, size / block, 1);
    append_axis(map, block, block);
  } else {
    append_axis(map, size, block);
  }
}

std::int64_t ceil_divide(std::int64_t n, std::int64_t by) { return n / by + (n % by != 0); }

int resolve_axis(int axis, std::size_t rank, const char* what) {
  const int resolved = axis < 0 ? axis + static_cast<int>(rank) : axis;
  if (resolved < 0 || resolved >= static_cast<int>(rank)) {
    throw std::invalid_argument(std::string("[quant_plan] expected the axis of ") + what +
                                " within a tensor of rank " + std::to_string(rank) + ", got " +
                                std::to_string(axis));
  }
  return resolved;
}

void require_positive(std::int64_t value, const char* what) {
  if (value > 0) return;
  throw std::invalid_argument(std::string("[quant_plan] expected ") + what + " > 0, got " +
                              std::to_string(value));
}

void require_rank(std::span<const std::int64_t> shape, std::size_t least, const char* what) {
  if (shape.size() >= least) return;
  throw std::invalid_argument(std::string("[quant_plan] ") + what + " needs a shape of at least " +
                              std::to_string(least) + " axes, got " + shape_text(shape));
}

// The block of each axis; 0 stands for the whole axis.
std::array<std::int64_t, kMaxRank> block_shape(std::span<const std::int64_t> shape,
                                               Granularity granularity,
                                               const GranularityOptions& options) {
  std::array<std::int64_t, kMaxRank> block{};
  switch (granularity) {
    case Granularity::kTensor:
      break;
    case Granularity::kChannel:
      block[resolve_axis(options.axis, shape.size(), "channels")] = 1;
      break;
    case Granularity::kToken:
      require_rank(shape, 1, "token granularity");
      for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) block[axis] = 1;
      break;
    case Granularity::kGroup: {
      require_positive(options.group_size, "a group size");
      const int cut = resolve_axis(options.axis, shape.size(), "groups");
      for (std::int64_t& one : block) one = 1;
      block[cut] = options.group_size;
      break;
    }
    case Granularity::kBlock:
      require_rank(shape, 2, "block granularity");
      require_positive(options.block_rows, "rows of a block");
      require_positive(options.block_columns, "columns of a block");
      for (std::int64_t& one : block) one = 1;
      block[shape.size() - 2] = options.block_rows;
      block[shape.size() - 1] = options.block_columns;
      break;
  }
  return block;
}

void check_shape(std::span<const std::int64_t> shape) {
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw std::invalid_argument("[quant_plan] expected at most " + std::to_string(kMaxRank) +
                                " axes, got " + shape_text(shape));
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size == 0 ? 1 : size, &elements)) {
      throw std::invalid_argument(
          "[quant_plan] expected sizes >= 0 whose product fits 63 bits, got " + shape_text(shape));
    }
  }
}

// Strides nest: sorted by magnitude, each exceeds the span of the smaller ones. The strides of
// every view of a dense array nest. If strides do not, elements may share memory, which would be
// written twice.
bool strides_nest(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> axes;  // magnitude of the stride, size
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const auto stride = static_cast<std::uint64_t>(strides[axis]);
    if (shape[axis] > 1) axes.emplace_back(strides[axis] < 0 ? 0 - stride : stride, shape[axis]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t span = 0;  // the largest offset that the axes so far reach
  for (const auto& [stride, size] : axes) {
    if (stride <= static_cast<std::uint64_t>(span)) return false;
    std::int64_t whole;
    if (__builtin_mul_overflow(stride, size, &whole)) return false;
    if (__builtin_add_overflow(span, whole - static_cast<std::int64_t>(stride), &span))
      return false;
  }
  return true;
}

}  // namespace

ChannelLayout SetMap::as_channels() const {
  if (sets == 1) return ChannelLayout::per_tensor(elements);
  ChannelLayout layout{1, 1, 1};
  int axis = 0;
  if (axis < rank && block[axis] >= size[axis]) layout.outer = size[axis++];
  if (axis < rank && block[axis] == 1) layout.channels = size[axis++];
  if (axis < rank && block[axis] >= size[axis]) layout.inner = size[axis++];
  if (axis < rank || elements == 0) return {0, 0, 0};
  return layout;
}

SetMap make_set_map(std::span<const std::int64_t> shape, Granularity granularity,
                    const GranularityOptions& options) {
  check_shape(shape);
  const auto block = block_shape(shape, granularity, options);
  SetMap map;
  map.elements = 1;
  map.sets = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    map.elements *= shape[axis];
    map.sets *= block[axis] == 0 ? 1 : ceil_divide(shape[axis], block[axis]);
    append_divided(map, shape[axis], block[axis] == 0 ? shape[axis] : block[axis]);
  }
  return map;
}

SetMap make_set_map(const ChannelLayout& layout) {
  const std::int64_t shape[] = {layout.outer, layout.channels, layout.inner};
  return make_set_map(shape, Granularity::kChannel, {.axis = 1});
}

StrideMap make_stride_map(std::span<const std::int64_t> shape,
                          std::span<const std::int64_t> strides) {
  StrideMap map;
  if (strides.empty()) return map;
  if (strides.size() != shape.size()) {
    throw std::invalid_argument("[quant_plan] expected one stride per axis of " +
                                shape_text(shape) + ", got " + std::to_string(strides.size()));
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return map;  // nothing to find
  if (!strides_nest(shape, strides)) {
    throw std::invalid_argument(
        "[quant_plan] expected strides whose elements share no memory (each beyond the span of the "
        "smaller ones) for " +
        shape_text(shape) + ", got " + shape_text(strides));
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    const bool merges = map.rank > 0 && map.stride[map.rank - 1] == strides[axis] * shape[axis];
    if (merges) {
      map.size[map.rank - 1] *= shape[axis];
      map.stride[map.rank - 1] = strides[axis];
    } else {
      map.size[map.rank] = shape[axis];
      map.stride[map.rank] = strides[axis];
      ++map.rank;
    }
  }
  map.dense = map.rank == 0 || (map.rank == 1 && map.stride[0] == 1);
  return map;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

}  // namespace steelyard::kernels
