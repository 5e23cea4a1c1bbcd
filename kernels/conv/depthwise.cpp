#include "steelyard/kernels/conv/depthwise.h"

#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/conv/float_source.h"
#include "steelyard/kernels/conv/outer_sums.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"

namespace steelyard::kernels::depthwise {
namespace {

using Lanes = FloatOperands::Lanes;
constexpr std::int64_t kLanes = FloatOperands::kLanes;
constexpr std::int64_t kTapsAtOnce = 3;  // of a row of the kernel, which share what is loaded
constexpr std::int64_t kBandFloats = 32 * 1024;  // of the inputs of some output rows

// Lines of pixels whose channels fill whole vectors; those of inputs have the padding's columns.
struct Lines {
  explicit Lines(const Conv2dShape& shape)
      : s(shape),
        channels((s.in_channels + kLanes - 1) / kLanes * kLanes),
        taps(s.kernel_h * s.kernel_w),
        input((s.in_w + 2 * s.pad_w) * channels),
        output(s.out_w() * channels),
        band(std::clamp<std::int64_t>(kBandFloats / input / s.stride_h, 1, s.out_h())),
        bands((s.out_h() + band - 1) / band) {}

  Conv2dShape s;
  std::int64_t channels, taps, input, output;
  std::int64_t band, bands;  // output rows of a band, bands of an image
};

// `pixels` of a source from pixel `first` on, the vectors' last lanes 0.
template <class Source>
void read_line(const Lines& lines, const Source& from, std::int64_t first, std::int64_t pixels,
               float* to) {
  const std::int64_t channels = lines.s.in_channels;
  if (channels == lines.channels) return from.read(first * channels, pixels * channels, to);
  for (std::int64_t i = 0; i < pixels; ++i, to += lines.channels) {
    from.read((first + i) * channels, channels, to);
    std::fill(to + channels, to + lines.channels, 0.0F);
  }
}

// Rows of an output and, from the first on, the input rows that a row of the kernel reads there.
struct Rows {
  std::int64_t count;
  const float *x, *grad;
};

// sums[tap, c] += the sum over all pixels of grad[pixel, c] * x[pixel + tap, c], for kTaps
// neighbours of a row of the kernel and kVectors vectors of channels.
template <std::int64_t kTaps, std::int64_t kVectors>
void add_products(const Lines& lines, Rows rows, float* sums) {
  const Conv2dShape& s = lines.s;
  const std::int64_t channels = lines.channels, pixels = s.out_w(), line = s.stride_h * lines.input;
  const std::int64_t step = s.stride_w * channels, tap_step = s.dilation_w * channels;
  Lanes of[kTaps * kVectors];
  for_each_index<kTaps * kVectors>([&](auto i) {
    of[i] = FloatOperands::load(sums + i / kVectors * channels + i % kVectors * kLanes);
  });
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const float* x = rows.x + row * line;
    for (std::int64_t i = 0; i < pixels; ++i, x += step, rows.grad += channels) {
      Lanes g[kVectors];
      for_each_index<kVectors>([&](auto v) { g[v] = FloatOperands::load(rows.grad + v * kLanes); });
      for_each_index<kTaps * kVectors>([&](auto n) {
        const Lanes value =
            FloatOperands::load(x + n / kVectors * tap_step + n % kVectors * kLanes);
        of[n] = FloatOperands::add_products(of[n], value, g[n % kVectors]);
      });
    }
  }
  for_each_index<kTaps * kVectors>([&](auto i) {
    FloatOperands::store(sums + i / kVectors * channels + i % kVectors * kLanes, of[i]);
  });
}

template <std::int64_t kTaps>
void add_all_channels(const Lines& lines, const Rows& rows, float* sums) {
  std::int64_t c = 0;
  for (; c + 2 * kLanes <= lines.channels; c += 2 * kLanes) {
    add_products<kTaps, 2>(lines, {rows.count, rows.x + c, rows.grad + c}, sums + c);
  }
  if (c < lines.channels) {
    add_products<kTaps, 1>(lines, {rows.count, rows.x + c, rows.grad + c}, sums + c);
  }
}

// Calls visit(kernel column, number of taps as a constant) for the taps of a row of the kernel.
template <class Visit>
void for_each_run(const Conv2dShape& s, const Visit& visit) {
  std::int64_t kw = 0;
  for (; kw + kTapsAtOnce <= s.kernel_w; kw += kTapsAtOnce) {
    visit(kw, std::integral_constant<std::int64_t, kTapsAtOnce>());
  }
  for (; kw < s.kernel_w; ++kw) visit(kw, std::integral_constant<std::int64_t, 1>());
}

// sums [taps, channels] += the products of some output rows of an image.
template <class Source>
void add_band(const Lines& lines, const Source& x, const float* grad_y, std::int64_t image,
              std::int64_t first, float* sums) {
  const Conv2dShape& s = lines.s;
  const std::int64_t last = std::min(s.out_h(), first + lines.band);
  const std::int64_t top = std::max<std::int64_t>(0, first * s.stride_h - s.pad_h);
  const std::int64_t bottom =
      std::min(s.in_h, (last - 1) * s.stride_h - s.pad_h + (s.kernel_h - 1) * s.dilation_h + 1);
  const std::int64_t border = s.pad_w * lines.channels;
  float* const of_x = line_buffer<float, 1>(std::max<std::int64_t>(0, bottom - top) * lines.input);
  for (std::int64_t row = top; row < bottom; ++row) {
    float* const to = of_x + (row - top) * lines.input;
    std::fill_n(to, border, 0.0F);
    read_line(lines, x, (image * s.in_h + row) * s.in_w, s.in_w, to + border);
    std::fill_n(to + lines.input - border, border, 0.0F);
  }
  const float* grad = grad_y + (image * s.out_h() + first) * s.out_w() * s.in_channels;
  if (s.in_channels != lines.channels) {
    float* const padded = line_buffer<float, 2>((last - first) * lines.output);
    read_line(lines, Floats{grad, false}, 0, (last - first) * s.out_w(), padded);
    grad = padded;
  }
  for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
    // The output rows whose input row lies in the image.
    const std::int64_t shift = kh * s.dilation_h - s.pad_h;
    const std::int64_t begin =
        std::max(first, shift >= 0 ? 0 : (-shift + s.stride_h - 1) / s.stride_h);
    const std::int64_t end =
        s.in_h <= shift ? 0 : std::min(last, (s.in_h - 1 - shift) / s.stride_h + 1);
    if (begin >= end) continue;
    const float* const from = of_x + (begin * s.stride_h + shift - top) * lines.input;
    for_each_run(s, [&](std::int64_t kw, auto taps) {
      add_all_channels<taps>(lines,
                             {end - begin, from + kw * s.dilation_w * lines.channels,
                              grad + (begin - first) * lines.output},
                             sums + (kh * s.kernel_w + kw) * lines.channels);
    });
  }
}

// grad_w [C, KH, KW] = scale * the sums of x * grad_y.
template <class Source>
void backward_weight(const Conv2dShape& s, const Source& x, const float* grad_y, float scale,
                     const std::uint8_t* mask, float* grad_w) {
  const Lines lines(s);
  const std::int64_t bands = s.batch * lines.bands, size = lines.taps * lines.channels;
  const std::int64_t parts = std::min<std::int64_t>(omp_get_max_threads(), bands);
  float* const sums = line_buffer<float, 0>(parts * size);
  parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      float* const own = sums + part * size;
      std::fill_n(own, size, 0.0F);
      for (std::int64_t i = part * bands / parts; i < (part + 1) * bands / parts; ++i) {
        add_band(lines, x, grad_y, i / lines.bands, i % lines.bands * lines.band, own);
      }
    }
  });
  for (std::int64_t c = 0; c < s.in_channels; ++c) {
    for (std::int64_t tap = 0; tap < lines.taps; ++tap) {
      float sum = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        sum += sums[part * size + tap * lines.channels + c];
      }
      const std::int64_t i = c * lines.taps + tap;
      const bool passes = mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0;
      grad_w[i] = pass_inside(passes, sum * scale);
    }
  }
}

}  // namespace

void compute(const Conv2dBackwardWeight<float>& k) {
  backward_weight(k.shape, Floats{k.x, false}, k.grad_y, 1.0F, nullptr, k.grad_w);
}
template <typename Code>
void compute(const CodesBackwardWeight<Code>& k) {
  backward_weight(k.shape, Codes<Code>{k.x, *k.zero_point}, k.grad_y, *k.scale, k.mask, k.grad_w);
}

template void compute(const CodesBackwardWeight<std::int8_t>&);
template void compute(const CodesBackwardWeight<std::uint8_t>&);

}  // namespace steelyard::kernels::depthwise
