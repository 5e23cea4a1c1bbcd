// A transposed convolution as an ordinary one, for products of integers.
//
// The output pixels of one phase, those at which (position + padding) mod stride is the same, are a
// convolution of the input with every stride-th tap. All phases together are one convolution of
// stride 1 with stride_h * stride_w outputs for each output channel, whose pixels are then put side
// by side (the sub-pixel convolution of Shi et al., arXiv:1609.05158). It has about as many
// products as the transposed one, where a convolution over an input with zeros between its pixels
// has stride_h * stride_w times as many.
#pragma once

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// Height or width of a transposed convolution.
struct TransposedSide {
  std::int64_t in, out, kernel, stride, padding, dilation;

  // What the convolution of all phases has: its kernel, how far apart the taps are, the zeros at
  // both ends of its input, its output.
  STEELYARD_HOST_DEVICE std::int64_t taps() const {
    return divide(dilation * (kernel - 1), stride * spacing()) + 1;
  }
  STEELYARD_HOST_DEVICE std::int64_t spacing() const {
    const std::int64_t whole = divide(dilation, stride);
    return whole * stride == dilation ? whole : 1;
  }
  STEELYARD_HOST_DEVICE std::int64_t border() const { return reach() + extra(); }
  STEELYARD_HOST_DEVICE std::int64_t positions() const { return in + reach() + 2 * extra(); }
  // The first pixel of the output among the positions * stride pixels of all phases.
  STEELYARD_HOST_DEVICE std::int64_t first() const { return stride * extra() + padding; }
  // The kernel's element that is tap `tap` of a phase; -1 where that is 0.
  STEELYARD_HOST_DEVICE std::int64_t element(std::int64_t phase, std::int64_t tap) const {
    const std::int64_t distance = stride * spacing() * (taps() - 1 - tap) + phase;
    const std::int64_t k = divide(distance, dilation);
    return k * dilation == distance && k < kernel ? k : -1;
  }
  // The input's position that element k of the kernel brings to position `at`; -1 for none.
  STEELYARD_HOST_DEVICE std::int64_t source(std::int64_t at, std::int64_t k) const {
    const std::int64_t distance = at + padding - k * dilation;
    if (distance < 0) return -1;
    const std::int64_t from = divide(distance, stride);
    return from * stride == distance && from < in ? from : -1;
  }

 private:
  STEELYARD_HOST_DEVICE std::int64_t reach() const { return spacing() * (taps() - 1); }
  // 1 where output_padding reaches beyond the last phase of the last position.
  STEELYARD_HOST_DEVICE std::int64_t extra() const {
    return out + padding > stride * (in + reach()) ? 1 : 0;
  }
};

// Weights are [O, C/groups, KH, KW], by output channel.
struct TransposedConv {
  std::int64_t batch, in_channels, out_channels, groups;
  TransposedSide height, width;

  std::int64_t phases() const { return height.stride * width.stride; }
  // The convolution of all phases, with weights [O * phases, C/groups, taps, taps].
  Conv2dShape convolution() const {
    return {.batch = batch,
            .in_h = height.in,
            .in_w = width.in,
            .in_channels = in_channels,
            .out_channels = out_channels * phases(),
            .kernel_h = height.taps(),
            .kernel_w = width.taps(),
            .pad_h = height.border(),
            .pad_w = width.border(),
            .dilation_h = height.spacing(),
            .dilation_w = width.spacing(),
            .groups = groups};
  }
};

// The weights of the convolution of all phases: phases [O, stride_h, stride_w, C/groups, taps_h,
// taps_w] of w [O, C/groups, KH, KW]; n elements. Where a phase has no such tap there is
// zero_points[o], or 0 where they are null.
template <typename T>
struct PhaseWeights {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n, channels;
  TransposedSide height, width;
  const T* w;
  const T* zero_points;
  T* phases;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = divide(i, width.taps()), tap_w = i - row * width.taps();
    const std::int64_t plane = divide(row, height.taps()), tap_h = row - plane * height.taps();
    const std::int64_t output = divide(plane, channels), channel = plane - output * channels;
    const std::int64_t line = divide(output, width.stride), x = output - line * width.stride;
    const std::int64_t o = divide(line, height.stride), y = line - o * height.stride;
    const std::int64_t k = height.element(y, tap_h), l = width.element(x, tap_w);
    if (k < 0 || l < 0) {
      phases[i] = zero_points == nullptr ? T{0} : zero_points[o];
    } else {
      phases[i] = w[((o * channels + channel) * height.kernel + k) * width.kernel + l];
    }
  }
};

// The output's pixels [N, OH, OW, O] of all phases [N, positions_h, positions_w, O, stride_h,
// stride_w]; n elements.
template <typename T>
struct PixelsOfPhases {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n, channels;
  TransposedSide height, width;
  const T* phases;
  T* pixels;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t pixel = divide(i, channels), channel = i - pixel * channels;
    const std::int64_t line = divide(pixel, width.out);
    const std::int64_t image = divide(line, height.out);
    const std::int64_t row = line - image * height.out + height.first();
    const std::int64_t column = pixel - line * width.out + width.first();
    const std::int64_t h = divide(row, height.stride), w = divide(column, width.stride);
    const std::int64_t position = (image * height.positions() + h) * width.positions() + w;
    pixels[i] = phases[((position * channels + channel) * height.stride + row - h * height.stride) *
                           width.stride +
                       column - w * width.stride];
  }
};

// What each output pixel of group `group` reads: patches [N * OH * OW, C/groups * KH * KW] of codes
// x [N, H, W, C], the zero point where an element of the kernel reads nothing. Zero points are one
// or, as zero_points says, one for each image; n elements.
template <typename Code>
struct TransposedPatches {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n, in_channels, channels, group;
  TransposedSide height, width;
  const Code* x;
  const std::int32_t* zero_point;
  std::int64_t zero_points;
  Code* patches;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t line = divide(i, width.kernel), l = i - line * width.kernel;
    const std::int64_t plane = divide(line, height.kernel), k = line - plane * height.kernel;
    const std::int64_t pixel = divide(plane, channels), channel = plane - pixel * channels;
    const std::int64_t row = divide(pixel, width.out), image = divide(row, height.out);
    const std::int64_t h = height.source(row - image * height.out, k);
    const std::int64_t w = width.source(pixel - row * width.out, l);
    patches[i] = h < 0 || w < 0 ? static_cast<Code>(zero_point[zero_points == 1 ? 0 : image])
                                : x[((image * height.in + h) * width.in + w) * in_channels +
                                    group * channels + channel];
  }
};

using TransposedConvKernels =
    JoinedKernels<ForTypes<PhaseWeights, std::int8_t>, ForTypes<PixelsOfPhases, std::int32_t>,
                  ForTypes<TransposedPatches, std::int8_t, std::uint8_t, std::int32_t>>;

}  // namespace steelyard::kernels
