// Depthwise convolutions of floats on a GPU: a thread has a strip of columns, four channels wide
// where the sizes allow. Weights are packed [taps, channels]; an Element is a value or several
// neighbours.
#pragma once

#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/strips.h"

namespace steelyard::kernels::cuda {

template <int kernel_w, int stride, typename Element>
__global__ void __launch_bounds__(kThreads)
    depthwise_forward_strips(Strips strips, SmallSizes c, const Element* x, const Element* packed,
                             const Element* bias, Element* y) {
  if (!strips.has_strip()) return;
  const Strip strip = strips.strip();
  Element sums[kStrip];
#pragma unroll
  for (int s = 0; s < kStrip; ++s) sums[s] = bias == nullptr ? Element{} : bias[strip.channel];
  const std::int32_t column = strip.at * kStrip;
  for (std::int32_t kh = 0; kh < c.kernel_h; ++kh) {
    const std::int32_t h = strip.row * c.stride_h - c.pad_h + kh * c.dilation_h;
    if (h < 0 || h >= c.in_h) continue;
    const Element* from = x + c.input_row(strip.image, h) + strip.channel;
    Element inputs[kStripInputs<kernel_w, stride>];
    load_columns(
        column * stride - c.pad_w, c.in_w, [&](std::int32_t w) { return from[w * c.channels]; },
        inputs);
    const Element* taps = packed + kh * kernel_w * c.channels + strip.channel;
#pragma unroll
    for (int kw = 0; kw < kernel_w; ++kw) {
      const Element weight = taps[kw * c.channels];
#pragma unroll
      for (int s = 0; s < kStrip; ++s) sums[s] += inputs[s * stride + kw] * weight;
    }
  }
  Element* to = y + c.output_row(strip.image, strip.row) + strip.channel;
#pragma unroll
  for (int s = 0; s < kStrip; ++s) {
    if (column + s < c.out_w) to[(column + s) * c.channels] = sums[s];
  }
}

// Strips of inputs begin where a window does, the first of a row up to stride - 1 columns before
// it: which taps of which outputs meet at a column is then known to the compiler.
template <int kernel_w, int stride, typename Element>
__global__ void __launch_bounds__(kThreads)
    depthwise_backward_input_strips(Strips strips, SmallSizes c, const Element* grad_y,
                                    const Element* packed, Element* grad_x) {
  static_assert(kStrip % stride == 0);
  if (!strips.has_strip()) return;
  const Strip strip = strips.strip();
  constexpr int kBefore = (kernel_w - 1) / stride;  // outputs that begin before the strip
  constexpr int kOutputs = kBefore + (kStrip - 1) / stride + 1;
  const std::int32_t column = strip.at * kStrip - c.pad_w % stride;
  Element sums[kStrip] = {};
  for (std::int32_t kh = 0; kh < c.kernel_h; ++kh) {
    const std::int32_t top = strip.row + c.pad_h - kh * c.dilation_h;
    if (top < 0) break;
    const std::int32_t oh = divide(top, c.stride_h);
    if (oh * c.stride_h != top || oh >= c.out_h) continue;
    const Element* from = grad_y + c.output_row(strip.image, oh) + strip.channel;
    Element grads[kOutputs];
    load_columns((column + c.pad_w) / stride - kBefore, c.out_w,
                 [&](std::int32_t ow) { return from[ow * c.channels]; }, grads);
    const Element* taps = packed + kh * kernel_w * c.channels + strip.channel;
#pragma unroll
    for (int kw = 0; kw < kernel_w; ++kw) {
      const Element weight = taps[kw * c.channels];
#pragma unroll
      for (int s = 0; s < kStrip; ++s) {
        if ((s - kw) % stride == 0) sums[s] += grads[(s - kw) / stride + kBefore] * weight;
      }
    }
  }
  Element* to = grad_x + c.input_row(strip.image, strip.row) + strip.channel;
#pragma unroll
  for (int s = 0; s < kStrip; ++s) {
    if (column + s >= 0 && column + s < c.in_w) to[(column + s) * c.channels] = sums[s];
  }
}

// The gradients of the taps of one row of a kernel: the batches are the kernel's rows, the rows
// those of the outputs of all images, the columns elements of channels. Sums of a type's own
// precision are short: kRun outputs.
template <int kernel_w, int stride, typename T, typename Element, typename Input>
struct TapRowTerm {
  static constexpr int kNeighbours = static_cast<int>(sizeof(Element) / sizeof(T));
  static constexpr int kSums = kernel_w * kNeighbours;
  static constexpr int kRun = 64;
  SmallSizes c;
  Input x;
  const Element* grad_y;

  __device__ void add(std::int64_t kh, std::int64_t row, std::int64_t channel,
                      Sums<kSums>& sums) const {
    const std::int32_t image = divide(static_cast<std::int32_t>(row), c.out_h);
    const std::int32_t oh = static_cast<std::int32_t>(row) - image * c.out_h;
    const std::int32_t h = oh * c.stride_h - c.pad_h + static_cast<std::int32_t>(kh) * c.dilation_h;
    if (h < 0 || h >= c.in_h) return;
    const std::int64_t inputs = c.input_row(image, h) + channel;
    const Element* grads = grad_y + c.output_row(image, oh) + channel;
    const auto values = x.loaded();
    for (std::int32_t begin = 0; begin < c.out_w; begin += kRun) {
      const std::int32_t end = begin + kRun < c.out_w ? begin + kRun : c.out_w;
      Element taps[kernel_w] = {};
      for (std::int32_t column = begin; column < end; column += kStrip) {
        add_strip(
            column, [&](std::int32_t w) { return values(inputs + w * c.channels); },
            [&](std::int32_t ow) { return grads[ow * c.channels]; }, taps);
      }
      add_taps(taps, sums);
    }
  }

 private:
  template <class ReadInput, class ReadGradient>
  __device__ void add_strip(std::int32_t column, const ReadInput& input,
                            const ReadGradient& gradient, Element (&taps)[kernel_w]) const {
    Element inputs[kStripInputs<kernel_w, stride>];
    Element grads[kStrip];
    load_columns(column * stride - c.pad_w, c.in_w, input, inputs);
    load_columns(column, c.out_w, gradient, grads);
#pragma unroll
    for (int s = 0; s < kStrip; ++s) {
#pragma unroll
      for (int kw = 0; kw < kernel_w; ++kw) taps[kw] += inputs[s * stride + kw] * grads[s];
    }
  }

  __device__ static void add_taps(const Element (&taps)[kernel_w], Sums<kSums>& sums) {
#pragma unroll
    for (int kw = 0; kw < kernel_w; ++kw) {
#pragma unroll
      for (int i = 0; i < kNeighbours; ++i) {
        sums.of[kw * kNeighbours + i] += static_cast<double>(neighbour(taps[kw], i));
      }
    }
  }
};

// packed[taps, channels] = the sums of the taps' neighbours.
template <int kernel_w, int neighbours, typename T>
struct StoreTapRow {
  T* packed;

  __device__ void operator()(const RowChunks& r, std::int64_t at,
                             const double (&sums)[kernel_w * neighbours]) const {
    const std::int64_t kh = divide(at, r.columns);
    const std::int64_t channel = at - kh * r.columns;
    for (int kw = 0; kw < kernel_w; ++kw) {
      T* tap = packed + ((kh * kernel_w + kw) * r.columns + channel) * neighbours;
#pragma unroll
      for (int i = 0; i < neighbours; ++i) tap[i] = static_cast<T>(sums[kw * neighbours + i]);
    }
  }
};

}  // namespace steelyard::kernels::cuda
