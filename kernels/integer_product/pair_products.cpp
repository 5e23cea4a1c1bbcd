// Operands q - z and weights become int16, whose products multiply-add in pairs into int32 on every
// x86 since SSE2. Images get a border of zeros, so that every window lies inside: a window is then
// the same offsets from its first pixel, and nothing is copied into patches.
#include "steelyard/kernels/integer_product/pair_products.h"

#include <algorithm>
#include <span>
#include <vector>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/taps.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/integer_product/pair_sums.h"

namespace steelyard::kernels::pair_products {
namespace {

using Operand = PairSums::Operand;

constexpr std::int64_t kColumns = PairSums::kColumns;
constexpr std::int64_t kRows = PairSums::kRows;
constexpr std::int64_t kPixelBlock = 8 * kRows;  // whose inputs stay in the cache for all columns

// Memory of this thread, which steps of training ask for again and again.
std::vector<Operand>& kept(int slot, std::int64_t size) {
  thread_local std::vector<Operand> buffers[2];
  std::vector<Operand>& buffer = buffers[slot];
  if (std::ssize(buffer) < size) buffer.resize(static_cast<std::size_t>(size));
  return buffer;
}

// Images as [N, H + 2 pad, W + 2 pad, C].
struct Bordered {
  explicit Bordered(const Conv2dShape& s)
      : row((s.in_w + 2 * s.pad_w) * s.in_channels), image((s.in_h + 2 * s.pad_h) * row) {}

  std::int64_t row, image;  // elements
};

template <typename Code>
void fill_bordered(const Conv2dShape& s, const Bordered& to, const Code* x, std::int32_t zero_point,
                   Operand* out) {
  const std::int64_t rows = s.in_h + 2 * s.pad_h, length = s.in_w * s.in_channels;
  parallel_for(s.batch * rows, 16384 / to.row + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Operand* const line = out + i * to.row;
      const std::int64_t h = i % rows - s.pad_h;
      const bool inside = h >= 0 && h < s.in_h;
      if (!inside || s.pad_w > 0) std::fill_n(line, to.row, Operand{0});
      if (!inside) continue;
      Operand* const target = line + s.pad_w * s.in_channels;
      const Code* const source = x + (i / rows * s.in_h + h) * length;
      STEELYARD_VECTORIZE
      for (std::int64_t c = 0; c < length; ++c) {
        target[c] = static_cast<Operand>(source[c] - zero_point);
      }
    }
  });
}

// The operands of an output pixel: runs that lie side by side in a bordered image, those of a row
// of the kernel where its columns touch each other, otherwise those of a tap. Long ones are cut.
// All runs have one even length; operands beyond the last that has a weight are multiplied by 0.
class Windows {
 public:
  Windows(const Conv2dShape& s, const Bordered& images) : shape_(s), images_(images) {
    const bool by_row = s.groups == 1 && s.dilation_w == 1;
    const std::int64_t channels = s.in_channels_per_group(), taps = s.kernel_h * s.kernel_w;
    const std::int64_t taps_of_run = by_row ? s.kernel_w : 1;
    const std::int64_t whole = taps_of_run * channels;
    const std::int64_t cuts = (whole + kChunk - 1) / kChunk;
    length_ = (whole + 2 * cuts - 1) / (2 * cuts) * 2;
    beyond_ = cuts * length_ - whole;
    for (std::int64_t tap = 0; tap < taps; tap += taps_of_run) {
      const std::int64_t begin = tap / s.kernel_w * s.dilation_h * images.row +
                                 tap % s.kernel_w * s.dilation_w * s.in_channels;
      for (std::int64_t i = 0; i < cuts * length_; ++i) {
        if (i % length_ == 0) begins_.push_back(begin + i);
        weights_.push_back(i < whole ? i % channels * taps + tap + i / channels : kNone);
      }
    }
  }

  static constexpr std::int64_t kNone = -1;
  // Of operands, whose weights for a tile of columns stay in the first-level cache.
  static constexpr std::int64_t kChunk = 8192 / kColumns;

  const Conv2dShape& shape() const { return shape_; }
  // Of the runs, from the first operand of a window on.
  std::span<const std::int64_t> begins() const { return begins_; }
  std::int64_t length() const { return length_; }
  std::int64_t runs_of_chunk() const { return std::max<std::int64_t>(1, kChunk / length_); }
  // How many operands the last run of an image's last window may read beyond the image.
  std::int64_t beyond() const { return beyond_; }
  // Where, in an output's weights [C/groups, KH, KW], that of each operand of the runs is, or
  // kNone.
  const std::vector<std::int64_t>& weights() const { return weights_; }
  std::int64_t begin(std::int64_t pixel) const {
    const std::int64_t line = pixel / shape_.out_w();
    return line / shape_.out_h() * images_.image +
           line % shape_.out_h() * shape_.stride_h * images_.row +
           pixel % shape_.out_w() * shape_.stride_w * shape_.in_channels;
  }

 private:
  const Conv2dShape& shape_;
  const Bordered& images_;
  std::int64_t length_ = 0, beyond_ = 0;
  std::vector<std::int64_t> begins_, weights_;
};

std::int64_t tiles_of(const Conv2dShape& s) {
  return (s.out_channels_per_group() + kColumns - 1) / kColumns;
}
std::int64_t tile_size(const Windows& windows) { return std::ssize(windows.weights()) * kColumns; }

// Weights [O, C/g, KH, KW] as [groups, tiles of columns, pairs of operands, columns, 2].
void pack_weights(const Windows& windows, const std::int8_t* w, Operand* out) {
  const Conv2dShape& s = windows.shape();
  const std::int64_t outputs = s.out_channels_per_group(), tiles = tiles_of(s);
  const std::int64_t of_output = s.weight_size() / s.out_channels, size = tile_size(windows);
  const std::vector<std::int64_t>& order = windows.weights();
  parallel_for(s.groups * tiles, 16384 / size + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first = tile % tiles * kColumns;
      const std::int64_t columns = std::min(kColumns, outputs - first);
      Operand* const to = out + tile * size;
      if (columns < kColumns) std::fill_n(to, size, Operand{0});
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int8_t* const from = w + (tile / tiles * outputs + first + column) * of_output;
        for (std::int64_t i = 0; i < std::ssize(order); i += 2) {
          Operand* const pair = to + i * kColumns + 2 * column;
          for (std::int64_t j : {0, 1}) {
            pair[j] = order[i + j] == Windows::kNone ? Operand{0} : Operand{from[order[i + j]]};
          }
        }
      }
    }
  });
}

// All outputs of a group for some pixels.
void multiply_block(const Windows& windows, std::int64_t first, std::int64_t pixels,
                    const Operand* x, const Operand* w, std::int32_t* acc) {
  const Conv2dShape& s = windows.shape();
  const std::int64_t outputs = s.out_channels_per_group();
  const std::span<const std::int64_t> begins = windows.begins();
  const std::int64_t runs = std::ssize(begins), length = windows.length();
  std::int32_t sums[kRows * kColumns];
  for (std::int64_t column = 0; column < outputs; column += kColumns, w += tile_size(windows)) {
    const std::int64_t columns = std::min(kColumns, outputs - column);
    for (std::int64_t run = 0; run < runs; run += windows.runs_of_chunk()) {
      const auto chunk = begins.subspan(run, std::min(windows.runs_of_chunk(), runs - run));
      const Operand* const weights = w + run * length * kColumns;
      for (std::int64_t row = 0; row < pixels; row += kRows) {
        const std::int64_t rows = std::min(kRows, pixels - row);
        const Operand* starts[kRows];
        for (std::int64_t r = 0; r < kRows; ++r) {  // missing rows repeat the last one
          starts[r] = x + windows.begin(first + row + std::min(r, rows - 1));
        }
        std::int32_t* const to = acc + row * s.out_channels + column;
        if (rows == kRows && columns == kColumns) {
          PairSums::compute(starts, chunk, length, weights, to, s.out_channels, run > 0);
          continue;
        }
        PairSums::compute(starts, chunk, length, weights, sums, kColumns, false);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c) {
            std::int32_t& sum = to[r * s.out_channels + c];
            sum = sums[r * kColumns + c] + (run > 0 ? sum : 0);
          }
        }
      }
    }
  }
}

// Calls each(first, number) for blocks of output pixels, over all threads.
template <typename Body>
void for_each_block(const Conv2dShape& s, const Body& each) {
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  parallel_for((pixels + kPixelBlock - 1) / kPixelBlock, 1,
               [&](std::int64_t block, std::int64_t end) {
                 for (; block < end; ++block) {
                   const std::int64_t first = block * kPixelBlock;
                   each(first, std::min(kPixelBlock, pixels - first));
                 }
               });
}

// Calls use(first pixel, number of pixels, sums) for blocks of pixels; sums(acc) writes the sums of
// all output channels.
template <typename Code, typename Use>
void multiply(const IntegerConv2d<Code>& k, const Use& use) {
  const Conv2dShape& s = k.shape;
  const Bordered images(s);
  const Windows windows(s, images);
  const std::int64_t group_weights = tiles_of(s) * tile_size(windows);
  Operand* const x = kept(0, s.batch * images.image + windows.beyond()).data();
  Operand* const w = kept(1, s.groups * group_weights).data();
  fill_bordered(s, images, k.x, *k.zero_point, x);
  pack_weights(windows, k.w, w);
  for_each_block(s, [&](std::int64_t first, std::int64_t pixels) {
    use(first, pixels, [&](std::int32_t* acc) {
      for (std::int64_t group = 0; group < s.groups; ++group) {
        multiply_block(windows, first, pixels, x + group * s.in_channels_per_group(),
                       w + group * group_weights, acc + group * s.out_channels_per_group());
      }
    });
  });
}

// Where a tap of a pixel's window reads, from the first channel on.
template <typename Code>
struct Tap {
  const Code* x;
  const std::int32_t* w;
};

// Taps that are added at once: sums that are loaded and stored for each tap wait for each other.
constexpr std::int64_t kTapsAtOnce = 3;

template <bool kAdd, typename Code>
void add_taps(std::int64_t channels, const Tap<Code>* taps, std::int32_t zero_point,
              std::int32_t* sums) {
  const Tap<Code> a = taps[0], b = taps[1], c = taps[2];
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < channels; ++i) {
    sums[i] = (kAdd ? sums[i] : 0) + (a.x[i] - zero_point) * a.w[i] +
              (b.x[i] - zero_point) * b.w[i] + (c.x[i] - zero_point) * c.w[i];
  }
}

// One input and one output channel per group.
template <typename Code, typename Use>
void multiply_depthwise(const IntegerConv2d<Code>& k, const Use& use) {
  const Conv2dShape& shape = k.shape;
  const std::int64_t channels = shape.in_channels;
  const std::int64_t taps = shape.kernel_h * shape.kernel_w;
  const std::int32_t zero_point = *k.zero_point;
  // The weights by tap; one tap more, of weights 0, fills up the last taps of a pixel.
  std::vector<std::int32_t> by_tap(static_cast<std::size_t>((taps + 1) * channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t tap = 0; tap < taps; ++tap) by_tap[tap * channels + c] = k.w[c * taps + tap];
  }
  const std::int64_t reach = (shape.kernel_w - 1) * shape.dilation_w;
  const std::int64_t step = shape.stride_w * channels;
  for_each_block(shape, [&](std::int64_t begin, std::int64_t pixels) {
    std::vector<Tap<Code>> inside;
    use(begin, pixels, [&](std::int32_t* acc) {
      std::int64_t column = begin % shape.out_w();
      bool was_whole = false;  // no column of the last pixel's window was in the padding
      for (std::int64_t pixel = begin; pixel < begin + pixels; ++pixel, acc += channels) {
        const std::int64_t left = column * shape.stride_w - shape.pad_w;
        const bool is_whole = left >= 0 && left + reach < shape.in_w;
        if (was_whole && is_whole && column > 0) {
          for (Tap<Code>& tap : inside) tap.x += step;
        } else {
          inside.clear();
          for_each_tap(shape, pixel, [&](std::int64_t tap, std::int64_t input) {
            if (input < 0) return;
            inside.push_back({k.x + input * channels, by_tap.data() + tap * channels});
          });
          while (inside.empty() || std::ssize(inside) % kTapsAtOnce != 0) {
            inside.push_back({k.x, by_tap.data() + taps * channels});
          }
        }
        was_whole = is_whole;
        column = column + 1 == shape.out_w() ? 0 : column + 1;
        add_taps<false>(channels, inside.data(), zero_point, acc);
        for (std::int64_t i = kTapsAtOnce; i < std::ssize(inside); i += kTapsAtOnce) {
          add_taps<true>(channels, inside.data() + i, zero_point, acc);
        }
      }
    });
  });
}

template <typename Code, typename Use>
void multiply_any(const IntegerConv2d<Code>& k, const Use& use) {
  if (k.shape.is_depthwise()) {
    multiply_depthwise(k, use);
  } else {
    multiply(k, use);
  }
}

}  // namespace

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  multiply_any(k, [&](std::int64_t first, std::int64_t, const auto& sums) {
    sums(k.acc + first * k.shape.out_channels);
  });
}

template <typename Code, typename Out>
void compute(const IntegerConv2d<Code>& k, const Requantizer<Out>& requantize) {
  const std::int64_t channels = k.shape.out_channels;
  static_assert(kPixelBlock % 8 == 0, "a block begins with a byte of the mask");
  multiply_any(k, [&](std::int64_t first, std::int64_t pixels, const auto& sums) {
    thread_local std::vector<std::int32_t> acc;
    if (std::ssize(acc) < kPixelBlock * channels) {
      acc.resize(static_cast<std::size_t>(kPixelBlock * channels));
    }
    sums(acc.data());
    requantize(first * channels, (first + pixels) * channels, acc.data());
  });
}

template void compute(const IntegerConv2d<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&);
template void compute(const IntegerConv2d<std::int8_t>&, const Requantizer<std::int8_t>&);
template void compute(const IntegerConv2d<std::int8_t>&, const Requantizer<std::uint8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&, const Requantizer<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&, const Requantizer<std::uint8_t>&);

}  // namespace steelyard::kernels::pair_products
