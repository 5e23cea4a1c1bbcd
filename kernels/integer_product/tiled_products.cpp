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
#include "steelyard/kernels/integer_product/packed_weights.h"
#include "steelyard/kernels/integer_product/pair_sums.h"
#include "steelyard/kernels/integer_product/pixel_blocks.h"
#include "steelyard/kernels/integer_product/tile_sums.h"
#include "steelyard/kernels/integer_product/tile_windows.h"
#if defined(__AVX2__)
#include "steelyard/kernels/integer_product/depthwise_pairs.h"
#include "steelyard/kernels/integer_product/quad_sums.h"
#else
#include "steelyard/kernels/integer_product/depthwise_products.h"
#endif
#if defined(__AVX512BW__)
#include "steelyard/kernels/integer_product/depthwise_quads.h"
#elif defined(__AVX2__)
#include "steelyard/kernels/integer_product/byte_sums.h"
#elif defined(__aarch64__)
#include "steelyard/kernels/instructions.h"
#include "steelyard/kernels/integer_product/arm_sums.h"
#endif

namespace steelyard::kernels::tiled_products {
namespace {

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

// Adds the products of some runs of the windows that begin at `starts`, as sum_tile() does, for any
// number of pixels, and stores the sums of the first `columns` columns.
template <class Sums, std::int64_t kVectors>
void multiply_runs(std::span<const std::int64_t> begins, std::int64_t length,
                   const typename Sums::Weight* weights, const std::int32_t* first, bool add,
                   std::int64_t pixels, const typename Sums::Operand* const* starts,
                   std::int64_t columns, std::int64_t stride, std::int32_t* acc) {
  constexpr std::int64_t kRows = kTileRows<Sums, kVectors>, kStep = kRowStep<Sums, kVectors>;
  constexpr std::int64_t kWidth = kVectors * Sums::kLanes;
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
      sum(of_rows, begins, length, weights, first, add, to, stride);
      continue;
    }
    std::int32_t sums[kRows * kWidth];
    if (add) {
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(to + r * stride, columns, sums + r * kWidth);
      }
    }
    sum(of_rows, begins, length, weights, first, add, sums, kWidth);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(sums + r * kWidth, columns, to + r * stride);
    }
  }
}

// The columns of one tile for some pixels, whose windows begin at `starts`.
template <class Sums, std::int64_t kVectors>
void multiply_tile(const Windows<Sums>& windows, const PackedWeights<Sums>& weights,
                   std::int64_t group, std::int64_t tile, std::int64_t pixels,
                   const typename Sums::Operand* const* starts, std::int32_t* acc) {
  const std::span<const std::int64_t> begins = windows.begins();
  const std::int64_t runs = std::ssize(begins), length = windows.length();
  for (std::int64_t run = 0; run < runs; run += windows.runs_of_chunk()) {
    const auto chunk = begins.subspan(run, std::min(windows.runs_of_chunk(), runs - run));
    const auto* const of_chunk =
        weights.weights(group, tile) + run * length * kVectors * Sums::kLanes;
    multiply_runs<Sums, kVectors>(chunk, length, of_chunk, weights.first(group, tile), run > 0,
                                  pixels, starts, weights.columns(tile),
                                  windows.shape().out_channels, acc);
  }
  if constexpr (kLeavesRest<Sums>) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const auto rest = weights.rest_begins(group, tile, v);
      if (rest.empty()) continue;
      const std::int64_t lanes = std::min(Sums::kLanes, weights.columns(tile) - v * Sums::kLanes);
      multiply_runs<Sums, 1>(rest, Sums::kTogether, weights.rest_weights(group, tile, v), nullptr,
                             true, pixels, starts, lanes, windows.shape().out_channels,
                             acc + v * Sums::kLanes);
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
          by(windows, weights, group, tile, block.pixels, starts.data(),
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

#if defined(__AVX2__)
// Where oneDNN is built, the Eigen backend computes as processors without VNNI do.
bool takes_vnni(Backend backend) {
  static const bool alone = available_backends().size() == 1;
  return QuadSums::usable() && (alone || backend != Backend::kEigen);
}
#endif

#if defined(__AVX2__) && !defined(__AVX512BW__)
// Keeps the weights for ByteSums, or nothing where a second product of what does not fit would cost
// more than ByteSums saves.
template <typename Code>
bool keeps_bytes(const IntegerConv2d<Code>& k) {
  if (k.kept == nullptr) return false;
  const Bordered images(k.shape);
  const Windows<ByteSums> windows(k.shape, images);
  const Shift<ByteSums, Code> shift(*k.zero_point);
  PackedWeights<ByteSums> weights(windows, k.w, shift.zero, k.kept);
  constexpr double kMostOfAll = 0.2;
  const bool pays = weights.part_of_rest() <= kMostOfAll;
  if (pays) {
    weights.leave_rest(windows);
  } else {
    *k.kept = {};
  }
  return pays;
}
#endif

// How the weights are read: as they are kept, or by the best instructions that there are.
template <typename Code>
KeptWeights::Form form_of(const IntegerConv2d<Code>& k) {
  using enum KeptWeights::Form;
  if (k.kept != nullptr && k.kept->form != kNone) return k.kept->form;
  const bool depthwise = k.shape.is_depthwise();
#if defined(__AVX512BW__)
  if (takes_vnni(k.backend)) return depthwise ? kTapQuads : kQuads;
  if (depthwise) return kTapPairs;
#elif defined(__AVX2__)
  if (depthwise) return kTapPairs;
  if (takes_vnni(k.backend)) return kQuads;
  if (keeps_bytes(k)) return kBytes;
#else
  if (depthwise) return kTaps;
#endif
#if defined(__aarch64__)
  switch (instruction_level()) {
    case InstructionLevel::kArmI8mm:
      return kMatrix;
    case InstructionLevel::kArmDotprod:
      return kDot;
    default:
      return takes_long_sums(k) ? kLong : kPairs;
  }
#endif
  return kPairs;
}

template <typename Code>
void multiply_any(const IntegerConv2d<Code>& k, UseOfBlock use) {
  using enum KeptWeights::Form;
  const auto use_whole = [&](std::int64_t first, std::int64_t pixels, SumsOfBlock sums) {
    use(Block{first, pixels, 0, k.shape.out_channels}, sums);
  };
  const KeptWeights::Form form = form_of(k);
  if (k.kept != nullptr && k.kept->form == kNone) k.kept->form = form;
  switch (form) {
#if defined(__AVX512BW__)
    case kTapQuads:
      return depthwise_products::multiply_quads(k, use_whole);
#endif
#if defined(__AVX2__)
    case kQuads:
      return multiply<QuadSums>(k, use);
    case kTapPairs:
      return depthwise_products::multiply_pairs(k, use_whole);
#if !defined(__AVX512BW__)
    case kBytes:
      return multiply<ByteSums>(k, use);
#endif
#else
    case kTaps:
      return depthwise_products::multiply(k, use_whole);
#endif
#if defined(__aarch64__)
    case kMatrix:
      return multiply<MatrixSums>(k, use);
    case kDot:
      return multiply<DotSums>(k, use);
    case kLong:
      return multiply<LongSums>(k, use);
#endif
    default:
      return multiply<PairSums>(k, use);
  }
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
