// Images get a border of the code of zero, so that every window lies inside: a window is then the
// same offsets from its first pixel, and nothing is copied into patches.
#include "steelyard/kernels/integer_product/tiled_products.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/function_ref.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/instructions.h"
#include "steelyard/kernels/integer_product/depthwise_products.h"
#include "steelyard/kernels/integer_product/depthwise_quads.h"
#include "steelyard/kernels/integer_product/packed_memory.h"
#include "steelyard/kernels/integer_product/pair_sums.h"
#include "steelyard/kernels/integer_product/pixel_blocks.h"
#include "steelyard/kernels/integer_product/quad_sums.h"
#include "steelyard/kernels/integer_product/tile_sums.h"
#if defined(__aarch64__)
#include "steelyard/kernels/integer_product/arm_sums.h"
#endif

namespace steelyard::kernels::tiled_products {
namespace {

template <class Sums>
constexpr std::int64_t kColumns = 2 * Sums::kLanes;

// Images as [N, H + 2 pad, W + 2 pad, C].
struct Bordered {
  explicit Bordered(const Conv2dShape& s)
      : row((s.in_w + 2 * s.pad_w) * s.in_channels), image((s.in_h + 2 * s.pad_h) * row) {}

  std::int64_t row, image;  // elements
};

// Operands are codes less `subtracted`: the zero point, or what makes signed codes unsigned or
// unsigned ones signed. So an operand of the value 0 is `zero`, and sums are too large by that of
// their weights times it.
template <class Sums, typename Code>
struct Shift {
  explicit Shift(std::int32_t zero_point)
      : subtracted(Sums::kTakesDifferences
                       ? zero_point
                       : std::numeric_limits<Code>::min() -
                             std::numeric_limits<typename Sums::Operand>::min()),
        zero(zero_point - subtracted) {}

  std::int32_t subtracted, zero;
};

// By value: operands may be bytes, which might alias anything else.
template <typename Code, typename Operand>
void subtract(std::int64_t n, const Code* from, Operand subtracted, Operand* to) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<Operand>(static_cast<Operand>(from[i]) - subtracted);
  }
}

template <class Sums, typename Code>
void fill_bordered(const Conv2dShape& s, const Bordered& to, const Code* x,
                   const Shift<Sums, Code>& shift, typename Sums::Operand* out) {
  using Operand = typename Sums::Operand;
  const std::int64_t rows = s.in_h + 2 * s.pad_h, length = s.in_w * s.in_channels;
  const std::int64_t border = s.pad_w * s.in_channels;
  const auto zero = static_cast<Operand>(shift.zero);
  const auto subtracted = static_cast<Operand>(shift.subtracted);
  parallel_for(s.batch * rows, 65536 / to.row + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Operand* const line = out + i * to.row;
      const std::int64_t h = i % rows - s.pad_h;
      if (h < 0 || h >= s.in_h) {
        std::fill_n(line, to.row, zero);
        continue;
      }
      std::fill_n(line, border, zero);
      Operand* const target = line + border;
      const Code* const source = x + (i / rows * s.in_h + h) * length;
      subtract(length, source, subtracted, target);
      std::fill_n(target + length, border, zero);
    }
  });
}

// Taps of a row of the kernel whose operands lie side by side in an image.
std::int64_t taps_of_run(const Conv2dShape& s) {
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
  std::span<const std::int64_t> begins() const { return begins_; }
  std::int64_t length() const { return length_; }
  std::int64_t runs_of_chunk() const { return std::max<std::int64_t>(1, kChunk / length_); }
  // How many operands the last run of an image's last window may read beyond the image.
  std::int64_t beyond() const { return beyond_; }
  // Operands of all runs.
  std::int64_t operands() const { return std::ssize(begins_) * length_; }
  // Where, in an output's weights [C/groups, KH, KW], that of each operand of the runs is; behind
  // the last one where it has none.
  std::vector<std::int64_t> order() const {
    const std::int64_t channels = shape_.in_channels_per_group();
    const std::int64_t taps = shape_.kernel_h * shape_.kernel_w;
    const std::int64_t whole = taps_of_run_ * channels;
    std::vector<std::int64_t> order;
    order.reserve(static_cast<std::size_t>(operands()));
    for (std::int64_t tap = 0; tap < taps; tap += taps_of_run_) {
      for (std::int64_t i = 0; i < whole + beyond_; ++i) {
        order.push_back(i < whole ? i % channels * taps + tap + i / channels : channels * taps);
      }
    }
    return order;
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
  std::vector<std::int64_t> begins_;
};

// Weights as [groups, tiles of columns, operands / kTogether, columns, kTogether], where the last
// tile of a group has one vector of columns if that is enough, and what the sums of each column
// begin with.
template <class Sums>
class PackedWeights {
 public:
  using Memory = PackedMemory<typename Sums::Weight>;

  // `zero` is the operand of the value 0.
  PackedWeights(const Windows<Sums>& windows, const std::int8_t* w, std::int32_t zero,
                KeptWeights* kept)
      : outputs_(windows.shape().out_channels_per_group()),
        tiles_((outputs_ + kColumns<Sums> - 1) / kColumns<Sums>),
        size_(windows.operands() * kColumns<Sums>) {
    const std::int64_t tiles = windows.shape().groups * tiles_;
    memory_ = packed_memory<typename Sums::Weight>(
        kept, tiles * kColumns<Sums>, tiles * size_,
        [&](const Memory& memory) { fill(windows, w, zero, memory); });
  }

  std::int64_t outputs() const { return outputs_; }  // of a group
  std::int64_t tiles() const { return tiles_; }
  std::int64_t columns(std::int64_t tile) const {
    return std::min(kColumns<Sums>, outputs_ - tile * kColumns<Sums>);
  }
  std::int64_t vectors(std::int64_t tile) const { return columns(tile) <= Sums::kLanes ? 1 : 2; }
  const typename Sums::Weight* weights(std::int64_t group, std::int64_t tile) const {
    return memory_.weights + (group * tiles_ + tile) * size_;
  }
  const std::int32_t* first(std::int64_t group, std::int64_t tile) const {
    return memory_.first + (group * tiles_ + tile) * kColumns<Sums>;
  }

 private:
  void fill(const Windows<Sums>& windows, const std::int8_t* w, std::int32_t zero,
            const Memory& memory) {
    const Conv2dShape& s = windows.shape();
    const std::vector<std::int64_t> order = windows.order();
    parallel_for(s.groups * tiles_, 16384 / size_ + 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int8_t> line;
      for (std::int64_t i = begin; i < end; ++i) {
        fill_tile(windows, order, w, zero, memory, i, line);
      }
    });
  }

  void fill_tile(const Windows<Sums>& windows, const std::vector<std::int64_t>& order,
                 const std::int8_t* w, std::int32_t zero, const Memory& memory,
                 std::int64_t tile_of_all, std::vector<std::int8_t>& line) {
    const std::int64_t group = tile_of_all / tiles_, tile = tile_of_all % tiles_;
    constexpr std::int64_t kTogether = Sums::kTogether;
    const std::int64_t terms = windows.shape().weight_size() / windows.shape().out_channels;
    const std::int64_t stride = vectors(tile) * Sums::kLanes * kTogether;
    auto* const to = memory.weights + tile_of_all * size_;
    std::int32_t* const first = memory.first + tile_of_all * kColumns<Sums>;
    const std::int64_t operands = std::ssize(order);
    const bool in_order = terms == windows.shape().in_channels_per_group();
    line.assign(static_cast<std::size_t>(in_order ? operands : terms + 1), 0);
    for (std::int64_t column = 0; column < vectors(tile) * Sums::kLanes; ++column) {
      std::uint32_t sum = 0;  // wraps as the sums do
      if (column < columns(tile)) {
        const std::int64_t output = group * outputs_ + tile * kColumns<Sums> + column;
        std::copy_n(w + output * terms, terms, line.begin());
        for (std::int64_t k = 0; k < terms; ++k) sum += static_cast<std::uint32_t>(line[k]);
      } else {
        std::fill(line.begin(), line.end(), std::int8_t{0});
      }
      first[column] = static_cast<std::int32_t>(0U - sum * static_cast<std::uint32_t>(zero));
      if (in_order) {
        put(operands, line.data(), stride, to + column * kTogether);
      } else {
        put_by_order(order, line.data(), stride, to + column * kTogether);
      }
    }
  }

  // The weights of a column: of each operand `order` says where in `line` it is.
  static void put_by_order(std::span<const std::int64_t> order, const std::int8_t* line,
                           std::int64_t stride, typename Sums::Weight* to) {
    for (std::size_t i = 0; i < order.size(); i += Sums::kTogether, to += stride) {
      for (std::size_t j = 0; j < Sums::kTogether; ++j) to[j] = line[order[i + j]];
    }
  }
  // The weights of a column where they are in order in `line`.
  static void put(std::int64_t count, const std::int8_t* line, std::int64_t stride,
                  typename Sums::Weight* to) {
    for (std::int64_t i = 0; i < count; i += Sums::kTogether, to += stride) {
      if constexpr (std::is_same_v<typename Sums::Weight, std::int8_t>) {
        std::memcpy(to, line + i, Sums::kTogether);
      } else {
        std::copy_n(line + i, Sums::kTogether, to);
      }
    }
  }

  std::int64_t outputs_, tiles_, size_;
  Memory memory_;
};

// Some columns of one tile for some pixels, whose windows begin at `starts`.
template <class Sums, std::int64_t kVectors>
void multiply_tile(const Windows<Sums>& windows, std::int64_t pixels,
                   const typename Sums::Operand* const* starts,
                   const typename Sums::Weight* weights, const std::int32_t* first,
                   std::int64_t columns, std::int32_t* acc) {
  constexpr std::int64_t kRows = kTileRows<Sums, kVectors>, kStep = kRowStep<Sums, kVectors>;
  constexpr std::int64_t kWidth = kVectors * Sums::kLanes;
  const std::span<const std::int64_t> begins = windows.begins();
  const std::int64_t runs = std::ssize(begins), length = windows.length();
  const std::int64_t stride = windows.shape().out_channels;
  for (std::int64_t run = 0; run < runs; run += windows.runs_of_chunk()) {
    const auto chunk = begins.subspan(run, std::min(windows.runs_of_chunk(), runs - run));
    const auto* const of_chunk = weights + run * length * kWidth;
    // Rows are shared out among as few tiles as they need.
    std::int64_t tiles = (pixels + kRows - 1) / kRows;
    for (std::int64_t row = 0, rows = 0; row < pixels; row += rows, --tiles) {
      const std::int64_t left = pixels - row;
      const std::int64_t tile = ((left + tiles - 1) / tiles + kStep - 1) / kStep * kStep;
      rows = std::min(tile, left);
      const auto sum = sum_tile_of<Sums, kVectors>(tile);
      const auto* const of_rows = starts + row;
      std::int32_t* const to = acc + row * stride;
      if (rows == tile && columns == kWidth) {
        sum(of_rows, chunk, length, of_chunk, first, run > 0, to, stride);
        continue;
      }
      std::int32_t sums[kRows * kWidth];
      if (run > 0) {
        for (std::int64_t r = 0; r < rows; ++r) {
          std::copy_n(to + r * stride, columns, sums + r * kWidth);
        }
      }
      sum(of_rows, chunk, length, of_chunk, first, run > 0, sums, kWidth);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(sums + r * kWidth, columns, to + r * stride);
      }
    }
  }
}

// Some output channels of some pixels: [begin, begin + count) of each.
struct Block {
  std::int64_t first, pixels;
  std::int64_t first_channel, channels;
};

using SumsOfBlock = FunctionRef<void(std::int32_t*)>;
using UseOfBlock = FunctionRef<void(const Block&, SumsOfBlock)>;

// Calls use(Block, sums) for blocks of the output; sums(acc) writes the block's, acc being where
// those of all channels of its first pixel would begin.
template <class Sums, typename Code>
void multiply(const IntegerConv2d<Code>& k, UseOfBlock use) {
  using Operand = typename Sums::Operand;
  const Conv2dShape& s = k.shape;
  const Bordered images(s);
  const Windows<Sums> windows(s, images);
  const Shift<Sums, Code> shift(*k.zero_point);
  const Operand* x = nullptr;
  if constexpr (std::is_same_v<Operand, Code>) {
    const bool as_they_are =
        shift.subtracted == 0 && s.pad_h == 0 && s.pad_w == 0 && windows.beyond() == 0;
    if (as_they_are) x = k.x;
  }
  if (x == nullptr) {
    auto* const copy = line_buffer<Operand, 0>(s.batch * images.image + windows.beyond());
    fill_bordered(s, images, k.x, shift, copy);
    x = copy;
  }
  const PackedWeights<Sums> weights(windows, k.w, shift.zero, k.kept);
  // They are shared where the codes of each pixel's begin with a byte of a mask.
  const Columns shared{.tiles = weights.tiles(),
                       .shared = s.groups == 1 && s.out_channels % 8 == 0,
                       .rows = kRowStep<Sums, 2>};
  for_each_block(s, shared, [&](const PixelBlock& block) {
    static_assert(kPixelBlock % kRowStep<Sums, 1> == 0 && kPixelBlock % kRowStep<Sums, 2> == 0);
    static_assert(kColumns<Sums> % 8 == 0);
    std::array<const Operand*, kPixelBlock> starts;
    windows.find(x, block.first, block.pixels, starts.data());
    std::fill(starts.begin() + block.pixels, starts.end(),
              starts[block.pixels - 1]);  // of missing rows
    const std::int64_t last_tile = block.first_tile + block.tiles;
    const std::int64_t first_channel = block.first_tile * kColumns<Sums>;
    const std::int64_t channels =
        block.tiles == weights.tiles()
            ? s.out_channels
            : std::min(s.out_channels, last_tile * kColumns<Sums>) - first_channel;
    const auto sums = [&](std::int32_t* acc) {
      for (std::int64_t group = 0; group < s.groups; ++group) {
        for (std::int64_t tile = block.first_tile; tile < last_tile; ++tile) {
          const auto by =
              weights.vectors(tile) == 1 ? multiply_tile<Sums, 1> : multiply_tile<Sums, 2>;
          by(windows, block.pixels, starts.data(), weights.weights(group, tile),
             weights.first(group, tile), weights.columns(tile),
             acc + group * weights.outputs() + tile * kColumns<Sums>);
        }
        for (const Operand*& start : starts) start += s.in_channels_per_group();
      }
    };
    use(Block{block.first, block.pixels, first_channel, channels}, sums);
  });
}

#if defined(__aarch64__)
// Whether sums of products of int16 pairs gain and fit: where runs are not made longer by more than
// a third, and no weight is the least, which takes a small part of the time to see.
template <typename Code>
bool takes_long_sums(const IntegerConv2d<Code>& k) {
  constexpr std::int64_t kTogether = LongSums::kTogether;
  const std::int64_t run = taps_of_run(k.shape) * k.shape.in_channels_per_group();
  if (3 * ((run + kTogether - 1) / kTogether * kTogether) > 4 * run) return false;
  return std::memchr(k.w, std::numeric_limits<std::int8_t>::min(),
                     static_cast<std::size_t>(k.shape.weight_size())) == nullptr;
}
#endif

#if defined(__AVX512BW__)
// Where oneDNN is built, the Eigen backend computes as processors without VNNI do.
bool takes_vnni(Backend backend) {
  static const bool alone = available_backends().size() == 1;
  return has_vnni() && (alone || backend != Backend::kEigen);
}
#endif

template <typename Code>
void multiply_any(const IntegerConv2d<Code>& k, UseOfBlock use) {
  const auto use_whole = [&](std::int64_t first, std::int64_t pixels, SumsOfBlock sums) {
    use(Block{first, pixels, 0, k.shape.out_channels}, sums);
  };
#if defined(__AVX512BW__)
  if (takes_vnni(k.backend)) {
    return k.shape.is_depthwise() ? depthwise_products::multiply_quads(k, use_whole)
                                  : multiply<QuadSums>(k, use);
  }
#endif
  if (k.shape.is_depthwise()) return depthwise_products::multiply(k, use_whole);
#if defined(__aarch64__)
  switch (instruction_level()) {
    case InstructionLevel::kArmI8mm:
      return multiply<MatrixSums>(k, use);
    case InstructionLevel::kArmDotprod:
      return multiply<DotSums>(k, use);
    default:
      if (takes_long_sums(k)) return multiply<LongSums>(k, use);
  }
#endif
  multiply<PairSums>(k, use);
}

}  // namespace

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  const auto write = [&](const Block& block, SumsOfBlock sums) {
    sums(k.acc + block.first * k.shape.out_channels);
  };
  multiply_any(k, write);
}

template <typename Code, typename Out>
void compute(const IntegerConv2d<Code>& k, const Requantizer<Out>& requantize) {
  const std::int64_t channels = k.shape.out_channels;
  const auto write = [&](const Block& block, SumsOfBlock sums) {
    auto* const acc = line_buffer<std::int32_t, 3>(kPixelBlock * channels);
    sums(acc);
    // Rows that follow each other are one.
    const bool whole = block.channels == channels;
    const std::int64_t rows = whole ? 1 : block.pixels;
    const std::int64_t length = whole ? block.pixels * channels : block.channels;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * channels + block.first_channel;
      const std::int64_t begin = block.first * channels + at;
      requantize(begin, begin + length, acc + at);
    }
  };
  multiply_any(k, write);
}

template void compute(const IntegerConv2d<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&);
template void compute(const IntegerConv2d<std::int8_t>&, const Requantizer<std::int8_t>&);
template void compute(const IntegerConv2d<std::int8_t>&, const Requantizer<std::uint8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&, const Requantizer<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&, const Requantizer<std::uint8_t>&);

}  // namespace steelyard::kernels::tiled_products
