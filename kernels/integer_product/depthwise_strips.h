// Depthwise convolutions of codes on a GPU: a thread has a strip of kStrip columns of eight
// channels, and multiplies four taps of a channel by an instruction that adds four products of
// bytes.
//
// Unsigned codes and their zero point become signed by 128 less. Padding has the code of zero, so a
// sum of (x - zero_point) * w is that of x * w less the zero point times the sum of all weights.
#pragma once

#include "steelyard/kernels/cuda/strips.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/code_spans.h"

namespace steelyard::kernels::cuda {

inline constexpr int kStripChannels = kEight;

// Words of taps that an output multiplies: of its own and, where it begins at the second of two
// neighbouring columns, of none before them.
template <int kernel_w>
inline constexpr int kTapWords = (kernel_w + 1 + 3) / 4;

// Weights as threads read them: for each row of a kernel kTapWords rows of words, for each channel
// four taps, zeros after the last; and in a last row the sums of all weights.
struct DepthwiseWeights {
  std::int32_t channels, kernel_h, kernel_w, words;  // words of a kernel's row

  std::int64_t size() const { return std::int64_t{kernel_h * words + 1} * channels; }
  __device__ std::int32_t word(const std::int8_t* w, std::int64_t i) const {
    const std::int64_t row = divide(i, channels);
    const std::int8_t* taps = w + (i - row * channels) * kernel_h * kernel_w;
    if (row == kernel_h * words) {
      std::int32_t sum = 0;
      for (std::int32_t tap = 0; tap < kernel_h * kernel_w; ++tap) sum += taps[tap];
      return sum;
    }
    const auto kh = static_cast<std::int32_t>(divide(row, words));
    const std::int32_t first = (static_cast<std::int32_t>(row) - kh * words) * 4;
    std::uint32_t word = 0;
    for (std::int32_t n = 0; n < 4 && first + n < kernel_w; ++n) {
      const auto bits = static_cast<std::uint8_t>(taps[kh * kernel_w + first + n]);
      word |= static_cast<std::uint32_t>(bits) << (8 * n);
    }
    return static_cast<std::int32_t>(word);
  }
};

static __global__ void pack_depthwise_kernel(std::int64_t n, DepthwiseWeights weights,
                                             const std::int8_t* w, std::int32_t* packed) {
  const std::int64_t i = element_index();
  if (i < n) packed[i] = weights.word(w, i);
}

// Eight channels' words.
using EightWords = std::uint32_t[kStripChannels];

__device__ inline void load_words(const std::int32_t* from, EightWords& words) {
  const auto low = *reinterpret_cast<const uint4*>(from);
  const auto high = *reinterpret_cast<const uint4*>(from + 4);
  words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
  words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
}

// Two neighbouring columns, four channels at a time: the bytes of both, channel by channel.
struct ColumnPair {
  std::uint32_t words[4];
};
__device__ inline ColumnPair pair_of(const uint2& a, const uint2& b) {
  return {{__byte_perm(a.x, b.x, 0x5140), __byte_perm(a.x, b.x, 0x7362),
           __byte_perm(a.y, b.y, 0x5140), __byte_perm(a.y, b.y, 0x7362)}};
}
// The four bytes of a channel in two pairs.
__device__ inline std::uint32_t four_columns(const ColumnPair& a, const ColumnPair& b,
                                             int channel) {
  return __byte_perm(a.words[channel / 2], b.words[channel / 2],
                     channel % 2 == 0 ? 0x5410 : 0x7632);
}

// Columns left, left + 1, ... of a row by pairs; n of them are read, others and those outside of
// the image are padding. `flip` makes codes signed.
template <int n, int pairs, typename Code>
__device__ void load_pairs(const Code* row, std::int32_t left, std::int32_t columns,
                           std::int32_t channels, std::uint32_t flip, std::uint32_t padding,
                           ColumnPair (&values)[pairs]) {
  uint2 read[2 * pairs];
#pragma unroll
  for (int p = 0; p < 2 * pairs; ++p) {
    read[p] = make_uint2(padding, padding);
    if (p < n && left + p >= 0 && left + p < columns) {
      const uint2 codes = *reinterpret_cast<const uint2*>(row + (left + p) * channels);
      read[p] = make_uint2(codes.x ^ flip, codes.y ^ flip);
    }
  }
#pragma unroll
  for (int p = 0; p < pairs; ++p) values[p] = pair_of(read[2 * p], read[2 * p + 1]);
}

// The words of taps that begin one column later.
template <int words>
__device__ void move_taps(const EightWords (&taps)[words], EightWords (&moved)[words]) {
#pragma unroll
  for (int i = 0; i < kStripChannels; ++i) {
    moved[0][i] = taps[0][i] << 8;
#pragma unroll
    for (int q = 1; q < words; ++q) moved[q][i] = taps[q - 1][i] >> 24 | taps[q][i] << 8;
  }
}

using StripSums = std::int32_t[kStrip][kStripChannels];

// The sums of a strip whose first channel is `channel`.
template <int kernel_w, int stride, typename Code>
__device__ void sum_strip(const Strip& strip, const SmallSizes& c, std::int32_t channel,
                          const Code* x, std::int32_t zero_point, const std::int32_t* packed,
                          StripSums& sums) {
  constexpr int kWords = kTapWords<kernel_w>;
  constexpr int kPairs = (kStrip - 1) * stride / 2 + 2 * kWords;
  constexpr bool kUnsigned = std::is_unsigned_v<Code>;
  const std::int32_t zero = kUnsigned ? zero_point - 128 : zero_point;
  const std::uint32_t padding = (static_cast<std::uint32_t>(zero) & 0xFFU) * 0x01010101U;
  EightWords of_weights;
  load_words(packed + c.kernel_h * kWords * c.channels + channel, of_weights);
#pragma unroll
  for (int s = 0; s < kStrip; ++s) {
#pragma unroll
    for (int i = 0; i < kStripChannels; ++i) {
      sums[s][i] = -zero * static_cast<std::int32_t>(of_weights[i]);
    }
  }
  for (std::int32_t kh = 0; kh < c.kernel_h; ++kh) {
    const std::int32_t h = strip.row * c.stride_h - c.pad_h + kh * c.dilation_h;
    const bool inside = h >= 0 && h < c.in_h;
    ColumnPair pairs[kPairs];
    load_pairs<kStripInputs<kernel_w, stride>>(
        x + c.input_row(strip.image, inside ? h : 0) + channel,
        strip.at * kStrip * stride - c.pad_w, inside ? c.in_w : 0, c.channels,
        kUnsigned ? 0x80808080U : 0U, padding, pairs);
    EightWords taps[kWords], moved[kWords];
#pragma unroll
    for (int q = 0; q < kWords; ++q) {
      load_words(packed + (kh * kWords + q) * c.channels + channel, taps[q]);
    }
    move_taps(taps, moved);
#pragma unroll
    for (int s = 0; s < kStrip; ++s) {
      const int first = s * stride / 2;  // pair
      const auto& of_output = s * stride % 2 == 0 ? taps : moved;
#pragma unroll
      for (int q = 0; q < kWords; ++q) {
#pragma unroll
        for (int i = 0; i < kStripChannels; ++i) {
          const auto columns = four_columns(pairs[first + 2 * q], pairs[first + 2 * q + 1], i);
          sums[s][i] =
              __dp4a(static_cast<int>(columns), static_cast<int>(of_output[q][i]), sums[s][i]);
        }
      }
    }
  }
}

// What becomes of sums: accumulators ...
struct StoreAccumulators {
  std::int32_t* acc;

  __device__ StoreAccumulators of_channels(std::int32_t) const { return *this; }
  __device__ void operator()(std::int64_t first, const std::int32_t (&sums)[kEight]) const {
    store_span(sums, kEight, acc + first);
  }
};

// ... or codes and masks.
template <typename Out>
struct StoreCodes {
  RequantizeAccumulators<Out> to;

  struct OfChannels {
    const RequantizeAccumulators<Out>& to;
    OutputCodes out;
    EightChannels channels;

    __device__ void operator()(std::int64_t first, const std::int32_t (&sums)[kEight]) const {
      write_sums(Span{first, kEight}, to, out, channels, sums);
    }
  };
  __device__ OfChannels of_channels(std::int32_t channel) const {
    const float scale = *to.scale;
    return {to, output_codes(to.op.activation, scale, *to.zero_point, to.range),
            EightChannels(to, channel, scale)};
  }
};

template <int kernel_w, int stride, typename Code, class Store>
__global__ void __launch_bounds__(kThreads)
    depthwise_codes_kernel(Strips strips, SmallSizes c, const Code* x,
                           const std::int32_t* zero_point, const std::int32_t* packed,
                           Store store) {
  if (!strips.has_strip()) return;
  const Strip strip = strips.strip();
  const std::int32_t channel = strip.channel * kStripChannels;
  alignas(16) StripSums sums;
  sum_strip<kernel_w, stride>(strip, c, channel, x, *zero_point, packed, sums);
  const std::int64_t row = c.output_row(strip.image, strip.row) + channel;
  const auto store_sums = store.of_channels(channel);
#pragma unroll
  for (int s = 0; s < kStrip; ++s) {
    const std::int32_t column = strip.at * kStrip + s;
    if (column < c.out_w) store_sums(row + column * c.channels, sums[s]);
  }
}

// Runs the kernel for these windows, if there is one.
template <typename Code, class Store>
bool sum_depthwise(const CudaQueue& queue, const IntegerConv2d<Code>& k, const Store& store) {
  const Conv2dShape& s = k.shape;
  constexpr std::int64_t kMostTaps = 1 << 14;  // int32 holds the sums, and what is taken off
  if (!s.is_depthwise() || s.in_channels % kStripChannels != 0 || !is_aligned(k.x, 8) ||
      s.kernel_h * s.kernel_w > kMostTaps) {
    return false;
  }
  return with_strip_kernel(s, [&](auto width, auto stride) {
    const auto small = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
    const DepthwiseWeights weights{small(s.in_channels), small(s.kernel_h), width,
                                   kTapWords<width>};
    const Scratch<std::int32_t> packed(queue, weights.size());
    launch_elements(queue, pack_depthwise_kernel, weights.size(), weights, k.w, packed.data());
    const Strips strips = make_strips(s.batch, s.out_h(), (s.out_w() + kStrip - 1) / kStrip,
                                      s.in_channels / kStripChannels);
    launch(depthwise_codes_kernel<width, stride, Code, Store>, strips.shape(), stream_of(queue),
           strips, small_sizes_of(s), k.x, k.zero_point,
           static_cast<const std::int32_t*>(packed.data()), store);
  });
}

}  // namespace steelyard::kernels::cuda
