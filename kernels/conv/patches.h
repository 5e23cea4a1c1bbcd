// Patches: a row for every output pixel, a column for every (group, kernel tap, channel of the
// group), which reads and writes neighbouring channels together.
#pragma once

#include <algorithm>

#include "steelyard/kernels/conv/operands.h"

namespace steelyard::kernels::cuda {

// The output pixels [begin, end).
struct PixelRange {
  std::int64_t begin, end;
};

// How patches are shared among blocks: a block has `width` neighbouring columns and as many runs of
// neighbouring pixels as it has threads for; a thread has one column of one run.
struct PatchGrid {
  unsigned width, runs;
  unsigned tiles;  // blocks side by side
  std::int64_t run;

  PatchGrid(std::int64_t columns, std::int64_t pixels)
      : tiles(static_cast<unsigned>(blocks_for(columns))) {
    constexpr std::int64_t kThreadsAtOnce = 1 << 18;  // of a large GPU
    constexpr std::int64_t kLongestRun = 8;
    width = static_cast<unsigned>((columns + tiles - 1) / tiles);
    runs = kThreads / width;
    run = std::clamp<std::int64_t>(pixels * columns / kThreadsAtOnce, 1, kLongestRun);
  }
  LaunchShape shape(std::int64_t pixels) const {
    const std::int64_t of_block = runs * run;
    return {(pixels + of_block - 1) / of_block * tiles, static_cast<int>(width * runs)};
  }
};

// Patches of a range of output pixels. Element is what is copied at once, a value or several of
// neighbouring channels; the sizes count channels in elements.
template <typename Element, typename Input>
__global__ void __launch_bounds__(kThreads)
    patches_kernel(PatchGrid grid, ConvSizes c, PixelRange range, Input x, Element* patches) {
  const std::int64_t block = blockIdx.x / grid.tiles;
  const unsigned tile = blockIdx.x % grid.tiles;
  const std::int64_t column = std::int64_t{tile} * grid.width + threadIdx.x % grid.width;
  std::int64_t pixel = range.begin + (block * grid.runs + threadIdx.x / grid.width) * grid.run;
  if (column >= c.columns || pixel >= range.end) return;
  const std::int64_t end = smaller(range.end, pixel + grid.run);
  const std::int64_t place = divide(column, c.channels);  // group * taps + tap
  const std::int64_t group = divide(place, c.taps);
  const std::int64_t tap = place - group * c.taps;
  const std::int64_t channel = group * c.channels + column - place * c.channels;
  const std::int64_t rightmost = (c.out_w - 1) * c.s.stride_w - c.s.pad_w;
  Element* to = patches + (pixel - range.begin) * c.columns + column;
  WindowPlace window = window_place(c, pixel);
  while (true) {
    const std::int64_t input = pixel_under(c, window, tap);
    *to = input < 0 ? Element{}
                    : x((window.image * c.s.in_h * c.s.in_w + input) * c.s.in_channels + channel);
    if (++pixel == end) return;
    to += c.columns;
    if (window.left == rightmost) {
      window = window_place(c, pixel);
    } else {
      window.left += c.s.stride_w;
    }
  }
}

// Gradients of input elements from `first` on: the sums of the patches' elements that read them.
// An image whose first patches were in an earlier range adds to what it has. Element as above.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::int64_t n, ConvSizes c, std::int64_t first, PixelRange range,
                  const Element* patches, Element* grad_x) {
  if (element_index() >= n) return;
  const std::int64_t i = first + element_index();
  const std::int64_t pixel = divide(i, c.in_channels);
  const std::int64_t group = divide(i - pixel * c.s.in_channels, c.channels);
  const std::int64_t channel = i - pixel * c.s.in_channels - group * c.channels;
  const Element* column = patches + group * c.taps * c.channels + channel;
  const std::int64_t image = divide(divide(pixel, c.in_w), c.in_h);
  Element sum = range.begin > image * c.out_h * c.out_w ? grad_x[i] : Element{};
  for_each_window(c, pixel, [&](std::int64_t output, std::int64_t tap) {
    if (output < range.begin || output >= range.end) return;
    sum += column[(output - range.begin) * c.columns + tap * c.channels];
  });
  grad_x[i] = sum;
}

template <typename T, typename Input>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Input& x, T* patches) {
  if (c.columns == 0) return;  // no channels
  const std::int64_t pixels = range.end - range.begin;
  const PatchGrid grid(c.columns, pixels);
  launch(patches_kernel<T, Input>, grid.shape(pixels), stream_of(queue), grid, c, range, x,
         patches);
}

// A convolution with `values` channels as one.
inline ConvSizes with_wide_channels(const ConvSizes& c, std::int64_t values) {
  Conv2dShape wide = c.s;
  wide.in_channels /= values;
  return sizes_of(wide);
}

// Fills patches 16 bytes at a time where x and the channels of a group allow it.
template <typename T>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Values<T>& x, T* patches) {
  constexpr std::int64_t kValues = sizeof(uint4) / sizeof(T);
  if (c.channels % kValues != 0 || !is_aligned(x.values, sizeof(uint4))) {
    return fill_patches<T, Values<T>>(queue, c, range, x, patches);
  }
  fill_patches<uint4, Values<uint4>>(queue, with_wide_channels(c, kValues), range,
                                     {reinterpret_cast<const uint4*>(x.values)},
                                     reinterpret_cast<uint4*>(patches));
}

template <typename Code>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Activations<Code>& x, float* patches) {
  if (c.channels % 4 != 0 || !begin_with_neighbours<4>(x.codes)) {
    return fill_patches<float, Activations<Code>>(queue, c, range, x, patches);
  }
  using Four = Neighbours<float, 4>;
  fill_patches<Four, FourActivations<Code>>(queue, with_wide_channels(c, 4), range, {x},
                                            reinterpret_cast<Four*>(patches));
}

// Output pixels whose patches are in memory together: whole images where one fits.
template <typename T>
std::int64_t pixels_at_once(const CudaQueue& queue, const ConvSizes& c) {
  const std::int64_t row_bytes = std::max<std::int64_t>(1, c.columns * std::int64_t{sizeof(T)});
  const std::int64_t most = std::max<std::int64_t>(1, queue.part_bytes / row_bytes);
  const std::int64_t images = most / c.image_pixels();
  return std::min(images > 0 ? images * c.image_pixels() : most, c.pixels());
}

template <typename Body>
void for_each_range(const ConvSizes& c, std::int64_t size, Body&& body) {
  for (std::int64_t begin = 0; begin < c.pixels(); begin += size) {
    body(PixelRange{begin, std::min(begin + size, c.pixels())});
  }
}

// Calls body(range, patches) until all output pixels had their turn.
template <typename T, typename Input, typename Body>
void for_each_patches(const CudaQueue& queue, const ConvSizes& c, const Input& x, Body&& body) {
  const std::int64_t size = pixels_at_once<T>(queue, c);
  const Scratch<T> patches(queue, size * c.columns);
  for_each_range(c, size, [&](const PixelRange& range) {
    fill_patches(queue, c, range, x, patches.data());
    body(range, static_cast<const T*>(patches.data()));
  });
}
template <typename T, typename Body>
void for_each_patches(const CudaQueue& queue, const ConvSizes& c, const T* x, Body&& body) {
  if (is_pointwise(c.s)) return body(PixelRange{0, c.pixels()}, x);
  for_each_patches<T>(queue, c, Values<T>{x}, body);
}

template <typename Element>
void gather_elements(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                     const Element* patches, Element* grad_x) {
  const std::int64_t image_size = c.s.in_h * c.s.in_w * c.s.in_channels;
  const std::int64_t first = range.begin / c.image_pixels();
  const std::int64_t last = (range.end - 1) / c.image_pixels();
  launch_elements(queue, gather_kernel<Element>, (last - first + 1) * image_size, c,
                  first * image_size, range, patches, grad_x);
}

template <typename T>
void gather(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range, const T* patches,
            T* grad_x) {
  if (c.channels % 4 != 0 || !begin_with_neighbours<4>(grad_x)) {
    return gather_elements<T>(queue, c, range, patches, grad_x);
  }
  using Four = Neighbours<T, 4>;
  gather_elements<Four>(queue, with_wide_channels(c, 4), range,
                        reinterpret_cast<const Four*>(patches), reinterpret_cast<Four*>(grad_x));
}

}  // namespace steelyard::kernels::cuda
