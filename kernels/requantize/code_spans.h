// How a thread of a GPU writes the codes of eight neighbours and their byte of mask.
#pragma once

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/requantize/formulas.h"

namespace steelyard::kernels::cuda {

// How many codes a kernel writes.
template <class K>
std::int64_t code_count(const K& k) {
  if constexpr (requires { k.n; }) {
    return k.n;
  } else {
    return k.op.rows * k.op.channels;
  }
}

// Writes the span's codes and, where mask is not null, its bits: element(i, code) sets a code and
// tells whether it passes.
template <typename Code, typename Element>
__device__ void write_codes(const Span& span, Code* codes, std::uint8_t* mask,
                            const Element& element) {
  alignas(16) Code y[kEight];
  unsigned passes = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    passes |= (element(i, y[i]) ? 1U : 0U) << i;
  }
  store_span(y, span.count, codes + span.first);
  if (mask != nullptr) mask[span.first / kEight] = static_cast<std::uint8_t>(passes);
}

// What requantization needs of the channels of eight neighbours.
struct EightChannels {
  alignas(16) std::int32_t bias[kEight];
  alignas(16) float product_scale[kEight];
  float multiplier[kEight];

  // Reads those of the neighbours from `channel` on in rows of channels; k is a
  // RequantizeAccumulators.
  template <class K>
  __device__ EightChannels(const K& k, std::int64_t channel, float scale) {
    const std::int64_t channels = k.op.channels;
    if (channel + kEight <= channels) {
      load_span(k.product_scale + channel, kEight, product_scale);
      if (k.bias != nullptr) load_span(k.bias + channel, kEight, bias);
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        product_scale[i] = k.product_scale[channel];
        if (k.bias != nullptr) bias[i] = k.bias[channel];
        channel = channel + 1 == channels ? 0 : channel + 1;
      }
    }
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if (k.bias == nullptr) bias[i] = 0;
      multiplier[i] = requantize_multiplier(product_scale[i], scale);
    }
  }
};

// Writes the span's codes and mask as RequantizeAccumulators does.
template <class K>
__device__ void write_sums(const Span& span, const K& k, const OutputCodes& out,
                           const EightChannels& channels, const std::int32_t (&sums)[kEight]) {
  using Code = std::remove_cvref_t<decltype(*k.codes)>;
  write_codes(span, k.codes, k.mask, [&](int i, Code& y) {
    const std::int32_t sum = sums[i] + channels.bias[i];
    const float code = requantized_code(sum, channels.multiplier[i], out.full.zero_point);
    y = static_cast<Code>(out.code(code));
    return out.passes(code, dequantize_sum(sum, channels.product_scale[i]));
  });
}

}  // namespace steelyard::kernels::cuda
