// Patches of codes, for kernels that read eight neighbouring channels at a time, where pixels have
// other numbers of them.
#pragma once

#include <algorithm>

#include "steelyard/kernels/cuda/windows.h"

namespace steelyard::kernels::cuda {

inline constexpr std::int64_t kPatchPiece = 16;  // codes that a thread writes

// Codes of a patch of so many terms.
inline std::int64_t code_patch_row(std::int64_t terms) {
  return (terms + kPatchPiece - 1) / kPatchPiece * kPatchPiece;
}

// Sixteen codes of the patches [pixels, row] of pixels from `first` on: the terms [taps, C], then
// the zero point, which also fills the padding.
template <typename Code>
__global__ void __launch_bounds__(kThreads)
    code_patches_kernel(std::int64_t threads, ConvSizes c, std::int64_t first, Divisor pieces,
                        const Code* x, const std::int32_t* zero_point, Code* patches) {
  const std::int64_t i = element_index();
  if (i >= threads) return;
  const std::int64_t pixel = divide(i, pieces);
  const WindowPlace window = window_place(c, first + pixel);
  const Code* const image = x + window.image * c.s.in_h * c.s.in_w * c.s.in_channels;
  const auto channels = static_cast<int>(c.s.in_channels), taps = static_cast<int>(c.taps);
  const auto term = static_cast<int>(i - pixel * pieces) * static_cast<int>(kPatchPiece);
  int tap = term / channels, channel = term - tap * channels;
  const auto zero = static_cast<Code>(*zero_point);
  const Code* source = nullptr;
  bool moved = true;
  alignas(16) Code codes[kPatchPiece];
#pragma unroll
  for (std::int64_t n = 0; n < kPatchPiece; ++n) {
    if (moved) {
      const std::int64_t under = tap < taps ? pixel_under(c, window, tap) : -1;
      source = under < 0 ? nullptr : image + under * channels;
    }
    codes[n] = source == nullptr ? zero : source[channel];
    moved = ++channel == channels;
    channel = moved ? 0 : channel;
    tap += moved ? 1 : 0;
  }
  *reinterpret_cast<uint4*>(patches + i * kPatchPiece) = *reinterpret_cast<const uint4*>(codes);
}

// Calls body(first pixel, pixels, patches) until all output pixels had their turn; `first` is a
// multiple of 8.
template <typename Code, typename Body>
void for_each_code_patches(const CudaQueue& queue, const ConvSizes& c, const Code* x,
                           const std::int32_t* zero_point, const Body& body) {
  const std::int64_t row = code_patch_row(c.group_columns());
  const std::int64_t most =
      std::min(std::max<std::int64_t>(1, queue.part_bytes / (8 * row)) * 8, c.pixels());
  const Scratch<Code> patches(queue, most * row);
  for (std::int64_t first = 0; first < c.pixels(); first += most) {
    const std::int64_t pixels = std::min(most, c.pixels() - first);
    launch_elements(queue, code_patches_kernel<Code>, pixels * row / kPatchPiece, c, first,
                    Divisor(row / kPatchPiece), x, zero_point, patches.data());
    body(first, pixels, static_cast<const Code*>(patches.data()));
  }
}

}  // namespace steelyard::kernels::cuda
