// Operands q - z and weights become int16, whose pairwise multiply-add into int32 every x86 since
// SSE2 has, and rows are padded with zeros to whole vectors.
#include "steelyard/kernels/integer_product/reference.h"

#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/taps.h"
#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels::reference {
namespace {

using Operand = std::int16_t;

constexpr std::int64_t kVector = 32;      // elements a row's length is padded to
constexpr std::int64_t kRowBlock = 64;    // rows of x converted at a time
constexpr std::int64_t kTileRows = 2;     // dot products computed together share their loads:
constexpr std::int64_t kTileColumns = 4;  // 8 sums for 6 loads

std::int64_t padded(std::int64_t length) { return (length + kVector - 1) / kVector * kVector; }

// out[r, c] = sum_k a[r, k] * b[c, k] for a tile of rows and columns; k is a multiple of kVector.
template <std::int64_t kRows, std::int64_t kColumns>
void dot_tile(std::int64_t k, const Operand* a, const Operand* b, std::int32_t* out,
              std::int64_t out_stride) {
  std::int32_t sums[kRows][kColumns] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        sums[r][c] += std::int32_t{a[r * k + i]} * b[c * k + i];
      }
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kColumns; ++c) out[r * out_stride + c] = sums[r][c];
  }
}

// All products of `rows` rows of a with `columns` rows of b.
void dot_rows(std::int64_t rows, std::int64_t columns, std::int64_t k, const Operand* a,
              const Operand* b, std::int32_t* out, std::int64_t out_stride) {
  for (std::int64_t c = 0; c < columns;) {
    const bool wide = c + kTileColumns <= columns;
    for (std::int64_t r = 0; r < rows;) {
      const bool tall = r + kTileRows <= rows;
      std::int32_t* const to = out + r * out_stride + c;
      if (wide && tall) {
        dot_tile<kTileRows, kTileColumns>(k, a + r * k, b + c * k, to, out_stride);
      } else if (wide) {
        dot_tile<1, kTileColumns>(k, a + r * k, b + c * k, to, out_stride);
      } else {
        for (std::int64_t row = r; row < std::min(rows, r + kTileRows); ++row) {
          dot_tile<1, 1>(k, a + row * k, b + c * k, out + row * out_stride + c, out_stride);
        }
      }
      r += tall ? kTileRows : 1;
    }
    c += wide ? kTileColumns : 1;
  }
}

template <typename Code>
void subtract_zero_point(std::int64_t n, const Code* x, std::int32_t zero_point, Operand* out) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<Operand>(x[i] - zero_point);
}

// Weights [O, C/g, KH, KW] as rows [O, padded(KH * KW * C/g)] in the order of an NHWC patch.
std::vector<Operand> weight_rows(const Conv2dShape& s, const std::int8_t* w) {
  const std::int64_t channels = s.in_channels_per_group();
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  const std::int64_t row = padded(taps * channels);
  std::vector<Operand> rows(static_cast<std::size_t>(s.out_channels * row), 0);
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        rows[o * row + tap * channels + c] = w[(o * channels + c) * taps + tap];
      }
    }
  }
  return rows;
}

}  // namespace

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  const Conv2dShape& shape = k.shape;
  const std::int64_t channels = shape.in_channels_per_group();
  const std::int64_t outputs = shape.out_channels_per_group();
  const std::int64_t row = padded(channels * shape.kernel_h * shape.kernel_w);
  const std::vector<Operand> weights = weight_rows(shape, k.w);
  const std::int64_t pixels = shape.batch * shape.out_h() * shape.out_w();
  parallel_for(pixels, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Operand> patches(static_cast<std::size_t>(kRowBlock * row));
    for (; begin < end; begin += kRowBlock) {
      const std::int64_t rows = std::min(kRowBlock, end - begin);
      for (std::int64_t group = 0; group < shape.groups; ++group) {
        std::fill(patches.begin(), patches.end(), Operand{0});
        for (std::int64_t r = 0; r < rows; ++r) {
          for_each_tap(shape, begin + r, [&](std::int64_t tap, std::int64_t input) {
            if (input < 0) return;
            subtract_zero_point(channels, k.x + input * shape.in_channels + group * channels,
                                *k.zero_point, patches.data() + r * row + tap * channels);
          });
        }
        dot_rows(rows, outputs, row, patches.data(), weights.data() + group * outputs * row,
                 k.acc + begin * shape.out_channels + group * outputs, shape.out_channels);
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
  parallel_for(pixels, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
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

}  // namespace steelyard::kernels::reference
