// Patches of codes, for kernels that read eight neighbouring channels at a time, where pixels have
// other numbers of them.
#pragma once

#include <algorithm>

#include "steelyard/kernels/cuda/windows.h"

namespace steelyard::kernels::cuda {

inline constexpr std::int64_t kPatchPiece = 16;  // codes that are written at once

// How the terms of a product lie: a run for each row of the kernel, whose terms are (column,
// channel); a run of patches is filled up to whole pieces.
struct TermRuns {
  Divisor run;  // with what fills it up
  Divisor channels;
  std::int64_t terms;  // of a run
  std::int64_t kernel_h, kernel_w;

  std::int64_t row() const { return kernel_h * run; }
  // The element of [channels, taps] that the term of a row is, -1 of what fills a run up.
  __device__ std::int64_t element(std::int64_t term) const {
    const std::int64_t line = divide(term, run);
    const std::int64_t at = term - line * run;
    if (at >= terms) return -1;
    const std::int64_t column = divide(at, channels);
    return (at - column * channels) * kernel_h * kernel_w + line * kernel_w + column;
  }
};

inline TermRuns plain_runs(const Conv2dShape& s) {
  const std::int64_t channels = s.in_channels_per_group(), terms = s.kernel_w * channels;
  return {terms, channels, terms, s.kernel_h, s.kernel_w};
}
inline TermRuns patch_runs(const Conv2dShape& s) {
  TermRuns runs = plain_runs(s);
  runs.run = (runs.terms + kPatchPiece - 1) / kPatchPiece * kPatchPiece;
  return runs;
}

// Codes from a place in a line of an image on, which has `size` of them; those beside it are zero
// points.
template <typename Code>
struct CodeLine {
  const Code* codes;
  std::int64_t size;
  Code zero;

  __device__ uint4 piece(std::int64_t begin) const {
    if (begin < 0 || begin + kPatchPiece > size) return edge(begin);
    const auto address = reinterpret_cast<std::uintptr_t>(codes + begin);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
    const auto shift = static_cast<unsigned>(address & 3) * 8;
    std::uint32_t of[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) of[i] = i < 4 || shift != 0 ? words[i] : 0U;
    return make_uint4(joined(of[0], of[1], shift), joined(of[1], of[2], shift),
                      joined(of[2], of[3], shift), joined(of[3], of[4], shift));
  }

 private:
  __device__ static std::uint32_t joined(std::uint32_t low, std::uint32_t high, unsigned shift) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(high) << 32 | low) >> shift);
  }
  __device__ uint4 edge(std::int64_t begin) const {
    std::uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kPatchPiece; ++i) {
      const std::int64_t at = begin + i;
      const Code code = at < 0 || at >= size ? zero : codes[at];
      words[i / 4] |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(code)) << 8 * (i % 4);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
};

// A piece of the run of one row of the kernel in the patch [kernel_h, run] of one of the pixels
// from `first` on; the padding holds the zero point.
template <typename Code>
__global__ void __launch_bounds__(kThreads)
    code_patches_kernel(std::int64_t threads, ConvSizes c, std::int64_t first, Divisor kernel_h,
                        Divisor pieces, const Code* x, const std::int32_t* zero_point,
                        Code* patches) {
  const std::int64_t i = element_index();
  if (i >= threads) return;
  const std::int64_t run = divide(i, pieces);
  const std::int64_t pixel = divide(run, kernel_h);
  const WindowPlace window = window_place(c, first + pixel);
  const std::int64_t h = window.top + (run - pixel * kernel_h) * c.s.dilation_h;
  const std::int64_t size = h < 0 || h >= c.s.in_h ? 0 : c.s.in_w * c.s.in_channels;
  const CodeLine<Code> line{
      x + (window.image * c.s.in_h + (size == 0 ? 0 : h)) * c.s.in_w * c.s.in_channels, size,
      static_cast<Code>(*zero_point)};
  reinterpret_cast<uint4*>(patches)[i] =
      line.piece(window.left * c.s.in_channels + (i - run * pieces) * kPatchPiece);
}

// Whether a row of the kernel reads neighbouring pixels.
inline bool has_code_patches(const Conv2dShape& s) {
  return s.groups == 1 && (s.dilation_w == 1 || s.kernel_w == 1);
}

// Calls body(first pixel, pixels, patches) until all output pixels had their turn; `first` is a
// multiple of 8. For convolutions that has_code_patches().
template <typename Code, typename Body>
void for_each_code_patches(const CudaQueue& queue, const ConvSizes& c, const Code* x,
                           const std::int32_t* zero_point, const Body& body) {
  const TermRuns runs = patch_runs(c.s);
  const std::int64_t row = runs.row();
  const std::int64_t most =
      std::min(std::max<std::int64_t>(1, queue.part_bytes / (8 * row)) * 8, c.pixels());
  const Scratch<Code> patches(queue, most * row);
  for (std::int64_t first = 0; first < c.pixels(); first += most) {
    const std::int64_t pixels = std::min(most, c.pixels() - first);
    launch_elements(queue, code_patches_kernel<Code>, pixels * row / kPatchPiece, c, first,
                    Divisor(runs.kernel_h), Divisor(runs.run / kPatchPiece), x, zero_point,
                    patches.data());
    body(first, pixels, static_cast<const Code*>(patches.data()));
  }
}

}  // namespace steelyard::kernels::cuda
