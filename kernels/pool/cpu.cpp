#include "steelyard/kernels/pool/pool.h"

#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements per thread that pay for waking it

std::int64_t grain_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements));
}

// Shares output rows among threads: body(image, output pixel, window).
template <class Body>
void parallel_windows(const Conv2dShape& s, Body&& body) {
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  parallel_for(s.batch * out_h, grain_of(out_w * s.in_channels),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   for (std::int64_t ow = 0; ow < out_w; ++ow) {
                     body(row / out_h, row * out_w + ow, window_of(s, row % out_h, ow));
                   }
                 }
               });
}

// Fills the gradients of inputs with zeros and calls add(output pixel, window, its image's
// gradients) for every window. Windows overlap inside an image only: threads share images.
template <typename T, class Add>
void spread_gradients(const Conv2dShape& s, T* grad_x, const Add& add) {
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  const std::int64_t image_size = s.in_h * s.in_w * s.in_channels;
  parallel_for(s.batch, grain_of(image_size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image) {
      T* const gradients = grad_x + image * image_size;
      std::fill_n(gradients, image_size, T(0));
      for (std::int64_t oh = 0; oh < out_h; ++oh) {
        for (std::int64_t ow = 0; ow < out_w; ++ow) {
          add((image * out_h + oh) * out_w + ow, window_of(s, oh, ow), gradients);
        }
      }
    }
  });
}

// y = the sums of x - zero over each window; then calls finish(window, sums of its channels).
template <typename X, typename Sum, class Finish>
void sum_windows(const Conv2dShape& s, const X* x, Sum zero, Sum* y, const Finish& finish) {
  const std::int64_t channels = s.in_channels;
  parallel_windows(s, [&](std::int64_t image, std::int64_t output, const Window& w) {
    Sum* sums = y + output * channels;
    std::fill_n(sums, channels, Sum(0));
    for_each_pixel(s, w, [&](std::int64_t pixel, std::int64_t) {
      const X* values = x + (image * s.in_h * s.in_w + pixel) * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) sums[c] += values[c] - zero;
    });
    finish(w, sums);
  });
}

template <typename T>
void max_values(std::int64_t channels, const T* x, T* best) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) best[c] = wins(x[c], best[c]) ? x[c] : best[c];
}

template <typename T>
void max_winners(std::int64_t channels, const T* x, std::uint16_t offset, T* best,
                 std::uint16_t* winner) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) {
    const bool take = wins(x[c], best[c]);
    best[c] = take ? x[c] : best[c];
    winner[c] = take ? offset : winner[c];
  }
}

}  // namespace

template <typename T>
void compute(const MaxPool<T>& k) {
  const Conv2dShape& s = k.shape;
  const std::int64_t channels = s.in_channels;
  parallel_windows(s, [&](std::int64_t image, std::int64_t output, const Window& w) {
    const T* source = k.x + image * s.in_h * s.in_w * channels;
    T* best = k.y + output * channels;
    std::uint16_t* winner = k.argmax == nullptr ? nullptr : k.argmax + output * channels;
    bool first = true;
    for_each_pixel(s, w, [&](std::int64_t pixel, std::int64_t offset) {
      const T* values = source + pixel * channels;
      const auto index = static_cast<std::uint16_t>(offset);
      if (first) {
        std::copy_n(values, channels, best);
        if (winner != nullptr) std::fill_n(winner, channels, index);
        first = false;
      } else if (winner == nullptr) {
        max_values(channels, values, best);
      } else {
        max_winners(channels, values, index, best, winner);
      }
    });
  });
}

template <typename T>
void compute(const MaxPoolBackward<T>& k) {
  const std::int64_t channels = k.shape.in_channels;
  spread_gradients(k.shape, k.grad_x, [&](std::int64_t output, const Window& w, T* image) {
    const T* grad = k.grad_y + output * channels;
    const std::uint16_t* winner = k.argmax + output * channels;
    for_each_pixel(k.shape, w, [&](std::int64_t pixel, std::int64_t offset) {
      T* target = image + pixel * channels;
      const auto index = static_cast<std::uint16_t>(offset);
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) target[c] += winner[c] == index ? grad[c] : T(0);
    });
  });
}

template <typename T>
void compute(const AveragePool<T>& k) {
  const std::int64_t channels = k.shape.in_channels;
  sum_windows(k.shape, k.x, T(0), k.y, [&](const Window& w, T* sums) {
    const T factor = average_factor<T>(k.shape, w, k.count_include_pad);
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) sums[c] *= factor;
  });
}

template <typename Code>
void compute(const IntegerWindowSums<Code>& k) {
  sum_windows(k.shape, k.x, *k.zero_point, k.sums, [](const Window&, std::int32_t*) {});
}

template <typename T>
void compute(const AveragePoolBackward<T>& k) {
  const std::int64_t channels = k.shape.in_channels;
  spread_gradients(k.shape, k.grad_x, [&](std::int64_t output, const Window& w, T* image) {
    const T* grad = k.grad_y + output * channels;
    const T factor = average_factor<T>(k.shape, w, k.count_include_pad);
    for_each_pixel(k.shape, w, [&](std::int64_t pixel, std::int64_t) {
      T* target = image + pixel * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) target[c] += grad[c] * factor;
    });
  });
}

template <typename T>
void compute(const GlobalAveragePool<T>& k) {
  const std::int64_t pixels = k.pixels, channels = k.channels;
  const std::int64_t image_size = pixels * channels;
  parallel_for(k.batch, grain_of(image_size), [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(channels);
    for (std::int64_t image = begin; image < end; ++image) {
      std::fill(sums.begin(), sums.end(), 0.0);
      add_terms(image * image_size, (image + 1) * image_size, channels, sums.data(),
                [x = k.x](std::int64_t i, std::int64_t) { return x[i]; });
      for (std::int64_t c = 0; c < channels; ++c) {
        k.y[image * channels + c] = T(sums[c] / double(pixels));
      }
    }
  });
}

template struct CpuKernels<PoolKernels>;

}  // namespace steelyard::kernels
