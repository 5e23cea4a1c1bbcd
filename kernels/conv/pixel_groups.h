// Codes of images in groups, for kernels that read eight neighbouring codes at a time: where pixels
// have no multiple of 8 channels, neighbouring ones of a line are copied to groups that are filled
// up to one. A group of as many pixels as windows are apart makes a stride of one group.
#pragma once

#include <optional>

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/windows.h"

namespace steelyard::kernels::cuda {

// A convolution whose lines consist of groups of pixels.
struct PixelGroups {
  Divisor pixels;  // of a group; the last one of a line may have fewer
  Divisor codes;   // of a group, with what fills it up
  Divisor line;    // groups of a line
  // Of the windows along a line, in groups. The first group of a window has `before` pixels that
  // the window has not.
  std::int64_t kernel_w, stride_w, pad_w, dilation_w;
  std::int64_t before;

  // Terms of a product for each row of the kernel.
  std::int64_t run() const { return kernel_w * codes; }
};

// Groups of one pixel and nothing that fills them up.
inline PixelGroups single_pixels(const Conv2dShape& s) {
  return {1, s.in_channels_per_group(), s.in_w, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w, 0};
}

// Groups of `pixels`: 1 or, of a kernel without dilation, the stride.
inline PixelGroups groups_of(const Conv2dShape& s, std::int64_t pixels) {
  const auto filled = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  PixelGroups groups = single_pixels(s);
  groups.pixels = pixels;
  groups.codes = filled(pixels * s.in_channels, kEight) * kEight;
  if (pixels == 1) return groups;
  groups.line = filled(s.in_w, pixels);
  groups.pad_w = filled(s.pad_w, pixels);
  groups.before = groups.pad_w * pixels - s.pad_w;
  groups.kernel_w = filled(groups.before + s.kernel_w, pixels);
  groups.stride_w = 1;
  return groups;
}

// The groups in which a product has fewest terms.
inline PixelGroups pixel_groups(const Conv2dShape& s) {
  if (s.in_channels % kEight == 0) return single_pixels(s);
  const PixelGroups single = groups_of(s, 1);
  if (s.dilation_w != 1) return single;
  const PixelGroups wide = groups_of(s, s.stride_w);
  return wide.run() < single.run() ? wide : single;
}

// How the terms of a product lie: a run of groups for each row of the kernel.
struct TermRuns {
  PixelGroups groups;
  Divisor run;
  Divisor channels;
  std::int64_t kernel_h, kernel_w;

  TermRuns(const Conv2dShape& s, const PixelGroups& of)
      : groups(of),
        run(of.run()),
        channels(s.in_channels_per_group()),
        kernel_h(s.kernel_h),
        kernel_w(s.kernel_w) {}

  STEELYARD_HOST_DEVICE std::int64_t row() const { return kernel_h * run; }
  // The element of [channels, taps] that the term of a row is, -1 of what fills groups up.
  __device__ std::int64_t element(std::int64_t term) const {
    const std::int64_t line = divide(term, run);
    const std::int64_t of_line = term - line * run;
    const std::int64_t group = divide(of_line, groups.codes);
    const std::int64_t of_group = of_line - group * groups.codes;
    const std::int64_t pixel = divide(of_group, channels);
    const std::int64_t column = group * groups.pixels + pixel - groups.before;
    if (pixel >= groups.pixels || column < 0 || column >= kernel_w) return -1;
    return (of_group - pixel * channels) * kernel_h * kernel_w + line * kernel_w + column;
  }
};

// Eight codes of a group of x [lines, width], a line having `width` codes; the zero point fills up.
template <typename Code>
__global__ void __launch_bounds__(kThreads)
    group_pixels_kernel(std::int64_t threads, PixelGroups groups, Divisor eights,
                        std::int64_t channels, std::int64_t width, const Code* x,
                        const std::int32_t* zero_point, Code* grouped) {
  const std::int64_t i = element_index();
  if (i >= threads) return;
  const std::int64_t group = divide(i, eights), line = divide(group, groups.line);
  const std::int64_t of_group = (i - group * eights) * kEight;
  const std::int64_t pixels = groups.pixels * channels;  // the codes of a whole group
  const std::int64_t of_line = (group - line * groups.line) * pixels + of_group;
  const std::int64_t left = smaller(pixels - of_group, width - of_line);
  alignas(kEight) Code codes[kEight];
  const Code* const from = x + line * width + of_line;
#pragma unroll
  for (int c = 0; c < kEight; ++c) codes[c] = c < left ? from[c] : static_cast<Code>(*zero_point);
  store_span(codes, kEight, grouped + i * kEight);
}

// The codes x [batch, in_h, in_w, channels] of a convolution without groups of channels, in groups
// of pixels: themselves where those are single pixels of a multiple of 8 channels, or a copy.
template <typename Code>
class GroupedPixels {
 public:
  GroupedPixels(const CudaQueue& queue, const Conv2dShape& s, const PixelGroups& groups,
                const Code* x, const std::int32_t* zero_point)
      : codes_(x) {
    if (groups.codes == s.in_channels) return;
    const std::int64_t size = s.batch * s.in_h * groups.line * groups.codes;
    copy_.emplace(queue, size);
    launch_elements(queue, group_pixels_kernel<Code>, size / kEight, groups,
                    Divisor(groups.codes / kEight), s.in_channels, s.in_w * s.in_channels, x,
                    zero_point, copy_->data());
    codes_ = copy_->data();
  }
  const Code* data() const { return codes_; }

 private:
  std::optional<Scratch<Code>> copy_;
  const Code* codes_;
};

}  // namespace steelyard::kernels::cuda
