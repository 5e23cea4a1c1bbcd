// Operands q - z and weights become int16, whose products multiply-add in pairs into int32 on every
// x86 since SSE2. Images get a border of zeros, so that every window lies inside: a window is then
// the same offsets from its first pixel, and nothing is copied into patches.
#include "steelyard/kernels/integer_product/pair_products.h"

#include <algorithm>
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

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Memory of this thread, which steps of training ask for again and again.
std::vector<Operand>& kept(int slot, std::int64_t size) {
  thread_local std::vector<Operand> buffers[2];
  std::vector<Operand>& buffer = buffers[slot];
  if (std::ssize(buffer) < size) buffer.resize(static_cast<std::size_t>(size));
  return buffer;
}

// Images as [N, H + 2 pad, W + 2 pad, groups, channels], channels of a group an even number.
struct Bordered {
  explicit Bordered(const Conv2dShape& s)
      : channels(rounded_up(s.in_channels_per_group(), 2)),
        pixel(s.groups * channels),
        row((s.in_w + 2 * s.pad_w) * pixel),
        image((s.in_h + 2 * s.pad_h) * row) {}

  std::int64_t channels, pixel, row, image;  // elements
};

template <typename Code>
void fill_bordered(const Conv2dShape& s, const Bordered& to, const Code* x, std::int32_t zero_point,
                   Operand* out) {
  const std::int64_t rows = s.in_h + 2 * s.pad_h, channels = s.in_channels_per_group();
  parallel_for(s.batch * rows, 16384 / to.row + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Operand* const line = out + i * to.row;
      const std::int64_t h = i % rows - s.pad_h;
      const bool inside = h >= 0 && h < s.in_h;
      if (!inside || s.pad_w > 0 || channels != to.channels) std::fill_n(line, to.row, Operand{0});
      if (!inside) continue;
      const Code* from = x + (i / rows * s.in_h + h) * s.in_w * s.in_channels;
      Operand* const first = line + s.pad_w * to.pixel;
      const bool dense = channels == to.channels;
      const std::int64_t runs = dense ? 1 : s.in_w * s.groups;
      const std::int64_t length = dense ? s.in_w * s.in_channels : channels;
      for (std::int64_t run = 0; run < runs; ++run) {
        Operand* const target = first + run * to.channels;
        const Code* const source = from + run * channels;
        STEELYARD_VECTORIZE
        for (std::int64_t c = 0; c < length; ++c) {
          target[c] = static_cast<Operand>(source[c] - zero_point);
        }
      }
    }
  });
}

// Weights [O, C/g, KH, KW] as [groups, tiles of columns, taps, pairs of channels, columns, 2].
void pack_weights(const Conv2dShape& s, std::int64_t channels, const std::int8_t* w, Operand* out) {
  const std::int64_t inputs = s.in_channels_per_group(), outputs = s.out_channels_per_group();
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  const std::int64_t padded = rounded_up(outputs, kColumns);
  std::fill_n(out, s.groups * padded * taps * channels, Operand{0});
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    const std::int64_t group = o / outputs, column = o % outputs;
    Operand* const tile = out + group * padded * taps * channels +
                          column / kColumns * kColumns * taps * channels + column % kColumns * 2;
    for (std::int64_t c = 0; c < inputs; ++c) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        tile[(tap * channels / 2 + c / 2) * kColumns * 2 + c % 2] =
            w[(o * inputs + c) * taps + tap];
      }
    }
  }
}

// Where the windows of output pixels begin, and their taps from there on.
class Windows {
 public:
  Windows(const Conv2dShape& s, const Bordered& images) : shape_(s), images_(images) {
    for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
        taps_.push_back(kh * s.dilation_h * images.row + kw * s.dilation_w * images.pixel);
      }
    }
  }
  const Conv2dShape& shape() const { return shape_; }
  const Bordered& images() const { return images_; }
  const std::vector<std::int64_t>& taps() const { return taps_; }
  std::int64_t begin(std::int64_t pixel) const {
    const std::int64_t line = pixel / shape_.out_w();
    return line / shape_.out_h() * images_.image +
           line % shape_.out_h() * shape_.stride_h * images_.row +
           pixel % shape_.out_w() * shape_.stride_w * images_.pixel;
  }

 private:
  const Conv2dShape& shape_;
  const Bordered& images_;
  std::vector<std::int64_t> taps_;
};

// All outputs of a group for some pixels.
void multiply_block(const Windows& windows, std::int64_t first, std::int64_t pixels,
                    const Operand* x, const Operand* w, std::int32_t* acc) {
  const Conv2dShape& s = windows.shape();
  const Bordered& images = windows.images();
  const std::int64_t outputs = s.out_channels_per_group();
  const std::int64_t tile = std::ssize(windows.taps()) * images.channels * kColumns;
  std::int32_t sums[kRows * kColumns];
  for (std::int64_t column = 0; column < outputs; column += kColumns, w += tile) {
    const std::int64_t columns = std::min(kColumns, outputs - column);
    for (std::int64_t row = 0; row < pixels; row += kRows) {
      const std::int64_t rows = std::min(kRows, pixels - row);
      const Operand* starts[kRows];
      for (std::int64_t r = 0; r < kRows; ++r) {  // missing rows repeat the last one
        starts[r] = x + windows.begin(first + row + std::min(r, rows - 1));
      }
      std::int32_t* const to = acc + row * s.out_channels + column;
      if (rows == kRows && columns == kColumns) {
        PairSums::compute(starts, windows.taps(), images.channels, w, to, s.out_channels);
        continue;
      }
      PairSums::compute(starts, windows.taps(), images.channels, w, sums, kColumns);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(sums + r * kColumns, columns, to + r * s.out_channels);
      }
    }
  }
}

}  // namespace

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  const Bordered images(s);
  const Windows windows(s, images);
  const std::int64_t group_weights = rounded_up(s.out_channels_per_group(), kColumns) *
                                     std::ssize(windows.taps()) * images.channels;
  Operand* const x = kept(0, s.batch * images.image).data();
  Operand* const w = kept(1, s.groups * group_weights).data();
  fill_bordered(s, images, k.x, *k.zero_point, x);
  pack_weights(s, images.channels, k.w, w);
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  parallel_for(pixels, kPixelBlock, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kPixelBlock) {
      for (std::int64_t group = 0; group < s.groups; ++group) {
        multiply_block(windows, begin, std::min(kPixelBlock, end - begin),
                       x + group * images.channels, w + group * group_weights,
                       k.acc + begin * s.out_channels + group * s.out_channels_per_group());
      }
    }
  });
}

template <typename Code>
void compute_depthwise(const IntegerConv2d<Code>& k) {
  const Conv2dShape& shape = k.shape;
  const std::int64_t channels = shape.in_channels;
  const std::int64_t taps = shape.kernel_h * shape.kernel_w;
  const std::int32_t zero_point = *k.zero_point;
  std::vector<Operand> by_tap(static_cast<std::size_t>(taps * channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t tap = 0; tap < taps; ++tap) by_tap[tap * channels + c] = k.w[c * taps + tap];
  }
  const std::int64_t pixels = shape.batch * shape.out_h() * shape.out_w();
  parallel_for(pixels, kPixelBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      std::int32_t* const sums = k.acc + pixel * channels;
      std::fill(sums, sums + channels, 0);
      for_each_tap(shape, pixel, [&](std::int64_t tap, std::int64_t input) {
        if (input < 0) return;
        const Code* const source = k.x + input * channels;
        const Operand* const weights = by_tap.data() + tap * channels;
        const std::int32_t zero = zero_point;
        STEELYARD_VECTORIZE
        for (std::int64_t c = 0; c < channels; ++c) sums[c] += (source[c] - zero) * weights[c];
      });
    }
  });
}

template void compute(const IntegerConv2d<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&);
template void compute_depthwise(const IntegerConv2d<std::int8_t>&);
template void compute_depthwise(const IntegerConv2d<std::uint8_t>&);

}  // namespace steelyard::kernels::pair_products
