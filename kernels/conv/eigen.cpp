#include "steelyard/kernels/conv/eigen.h"

#include <Eigen/Core>
#include <algorithm>
#include <tuple>
#include <vector>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/taps.h"

// Each thread unrolls a few output rows of one image into a matrix of patches [pixels, taps] (tap =
// (kernel row, kernel column, channel)), one group at a time, and multiplies it with the weights
// packed to [taps, out channels]. Depthwise convolutions have one channel per group and run as
// plain loops over the channels instead.
namespace steelyard::kernels::eigen {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using StridedMap = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

constexpr std::int64_t kPatchElements = 1 << 16;  // of one thread's patch matrix, if a row fits

std::int64_t taps(const Conv2dShape& s) {
  return s.kernel_h * s.kernel_w * s.in_channels_per_group();
}
std::int64_t rows_per_patch(const Conv2dShape& s) {
  return std::clamp<std::int64_t>(kPatchElements / (s.out_w() * taps(s)), 1, s.out_h());
}

// OIHW [groups * og, cg, kh, kw] <-> [groups, kh, kw, cg, og], or, depthwise, [kh, kw, groups]:
// calls copy(oihw index, packed index).
template <class Copy>
void for_each_weight(const Conv2dShape& s, Copy&& copy) {
  const std::int64_t og = s.out_channels_per_group(), cg = s.in_channels_per_group();
  const std::int64_t kernel = s.kernel_h * s.kernel_w;
  const bool depthwise = s.is_depthwise();
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    for (std::int64_t c = 0; c < cg; ++c) {
      for (std::int64_t k = 0; k < kernel; ++k) {
        const std::int64_t packed =
            depthwise ? k * s.groups + o : ((o / og * kernel + k) * cg + c) * og + o % og;
        copy((o * cg + c) * kernel + k, packed);
      }
    }
  }
}

template <typename T>
std::vector<T> pack_weights(const Conv2dShape& s, const T* w) {
  std::vector<T> packed(s.weight_size());
  for_each_weight(s, [&](std::int64_t oihw, std::int64_t index) { packed[index] = w[oihw]; });
  return packed;
}

// Output rows [begin, end) of one image.
struct Band {
  std::int64_t image = 0, begin = 0, end = 0;
};

// Calls visit(pixel within the band, kernel tap, input pixel or -1 in the padding).
template <class Visit>
void for_each_band_tap(const Conv2dShape& s, const Band& band, Visit&& visit) {
  const std::int64_t first = (band.image * s.out_h() + band.begin) * s.out_w();
  for (std::int64_t pixel = 0; pixel < (band.end - band.begin) * s.out_w(); ++pixel) {
    for_each_tap(s, first + pixel,
                 [&](std::int64_t tap, std::int64_t input) { visit(pixel, tap, input); });
  }
}

template <typename T>
void gather_patches(const Conv2dShape& s, const Band& band, std::int64_t group, const T* x,
                    Matrix<T>& patches) {
  const std::int64_t cg = s.in_channels_per_group();
  patches.resize((band.end - band.begin) * s.out_w(), taps(s));
  for_each_band_tap(s, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    T* patch = patches.data() + pixel * taps(s) + tap * cg;
    if (input < 0) {
      std::fill_n(patch, cg, T(0));
    } else {
      std::copy_n(x + input * s.in_channels + group * cg, cg, patch);
    }
  });
}

template <typename T>
void scatter_patches(const Conv2dShape& s, const Band& band, std::int64_t group,
                     const Matrix<T>& patches, T* grad_x) {
  const std::int64_t cg = s.in_channels_per_group();
  for_each_band_tap(s, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    if (input < 0) return;
    const T* patch = patches.data() + pixel * taps(s) + tap * cg;
    T* target = grad_x + input * s.in_channels + group * cg;
    for (std::int64_t c = 0; c < cg; ++c) target[c] += patch[c];
  });
}

// The band's rows and one group's columns of an [pixels, out_channels] array.
template <typename T>
StridedMap<T> output_block(const Conv2dShape& s, const Band& band, std::int64_t group, T* y) {
  const std::int64_t first = (band.image * s.out_h() + band.begin) * s.out_w();
  return StridedMap<T>(y + first * s.out_channels + group * s.out_channels_per_group(),
                       (band.end - band.begin) * s.out_w(), s.out_channels_per_group(),
                       Eigen::OuterStride<>(s.out_channels));
}

template <typename T>
Eigen::Map<const Matrix<T>> group_weights(const Conv2dShape& s, const std::vector<T>& packed,
                                          std::int64_t group) {
  const std::int64_t og = s.out_channels_per_group();
  return {packed.data() + group * taps(s) * og, taps(s), og};
}

template <class Body>
void for_each_band(const Conv2dShape& s, std::int64_t image, Body&& body) {
  const std::int64_t rows = rows_per_patch(s);
  for (std::int64_t begin = 0; begin < s.out_h(); begin += rows) {
    body(Band{image, begin, std::min(begin + rows, s.out_h())});
  }
}

template <typename T>
void forward_band(const Conv2dShape& s, const Band& band, const T* x, const std::vector<T>& packed,
                  const T* bias, Matrix<T>& patches, T* y) {
  for (std::int64_t group = 0; group < s.groups; ++group) {
    gather_patches(s, band, group, x, patches);
    auto block = output_block(s, band, group, y);
    block.noalias() = patches * group_weights(s, packed, group);
    if (bias == nullptr) continue;
    const std::int64_t og = s.out_channels_per_group();
    block.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias + group * og, og);
  }
}

// target[c] += a[c] * b[c] for every tap of a depthwise convolution, where of(pixel within the
// band, tap, input pixel) gives the three: pixels of x and y, taps of weights [kh * kw, channels].
template <class Of>
void multiply_taps(const Conv2dShape& s, const Band& band, const Of& of) {
  const std::int64_t channels = s.in_channels;
  for_each_band_tap(s, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    if (input < 0) return;
    const auto [target, a, b] = of(pixel * channels, tap * channels, input * channels);
    for (std::int64_t c = 0; c < channels; ++c) target[c] += a[c] * b[c];
  });
}

// The band's pixels of an output or its gradient.
template <typename T>
T* pixels_of(const Conv2dShape& s, const Band& band, T* y) {
  return y + (band.image * s.out_h() + band.begin) * s.out_w() * s.out_channels;
}

template <typename T>
void depthwise_forward_band(const Conv2d<T>& k, const Band& band, const std::vector<T>& packed) {
  const std::int64_t channels = k.shape.in_channels;
  T* out = pixels_of(k.shape, band, k.y);
  for (std::int64_t pixel = 0; pixel < (band.end - band.begin) * k.shape.out_w(); ++pixel) {
    for (std::int64_t c = 0; c < channels; ++c) {
      out[pixel * channels + c] = k.bias == nullptr ? T(0) : k.bias[c];
    }
  }
  multiply_taps(k.shape, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    return std::tuple{out + pixel, k.x + input, packed.data() + tap};
  });
}

template <typename T>
void depthwise_backward_input_band(const Conv2dBackwardInput<T>& k, const Band& band,
                                   const std::vector<T>& packed) {
  const T* grad = pixels_of(k.shape, band, k.grad_y);
  multiply_taps(k.shape, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    return std::tuple{k.grad_x + input, grad + pixel, packed.data() + tap};
  });
}

// Adds the band's share to packed gradients [kh * kw, channels].
template <typename T>
void depthwise_backward_weight_band(const Conv2dBackwardWeight<T>& k, const Band& band,
                                    T* packed_grad) {
  const T* grad = pixels_of(k.shape, band, k.grad_y);
  multiply_taps(k.shape, band, [&](std::int64_t pixel, std::int64_t tap, std::int64_t input) {
    return std::tuple{packed_grad + tap, k.x + input, grad + pixel};
  });
}

template <typename T>
void backward_weight_band(const Conv2dShape& s, const Band& band, const T* x, const T* grad_y,
                          Matrix<T>& patches, T* packed_grad) {
  const std::int64_t size = taps(s) * s.out_channels_per_group();
  for (std::int64_t group = 0; group < s.groups; ++group) {
    gather_patches(s, band, group, x, patches);
    Eigen::Map<Matrix<T>> grad(packed_grad + group * size, taps(s), s.out_channels_per_group());
    // The map is only read, although the data are const.
    grad.noalias() += patches.transpose() * output_block(s, band, group, const_cast<T*>(grad_y));
  }
}

}  // namespace

template <typename T>
void compute(const Conv2d<T>& k) {
  const Conv2dShape& s = k.shape;
  const bool depthwise = s.is_depthwise();
  const std::vector<T> packed = pack_weights(s, k.w);
  const std::int64_t rows = rows_per_patch(s);
  const std::int64_t bands = (s.out_h() + rows - 1) / rows;
  parallel_for(s.batch * bands, 1, [&](std::int64_t begin, std::int64_t end) {
    Matrix<T> patches;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % bands * rows;
      const Band band{i / bands, first, std::min(first + rows, s.out_h())};
      if (depthwise) {
        depthwise_forward_band(k, band, packed);
      } else {
        forward_band(s, band, k.x, packed, k.bias, patches, k.y);
      }
    }
  });
}

template <typename T>
void compute(const Conv2dBackwardInput<T>& k) {
  const Conv2dShape& s = k.shape;
  const bool depthwise = s.is_depthwise();
  const std::vector<T> packed = pack_weights(s, k.w);
  const std::int64_t image_size = s.in_h * s.in_w * s.in_channels;
  // Windows overlap inside an image only, so threads share images, not rows.
  parallel_for(s.batch, 1, [&](std::int64_t first, std::int64_t last) {
    Matrix<T> patches;
    for (std::int64_t image = first; image < last; ++image) {
      std::fill_n(k.grad_x + image * image_size, image_size, T(0));
      for_each_band(s, image, [&](const Band& band) {
        if (depthwise) return depthwise_backward_input_band(k, band, packed);
        for (std::int64_t group = 0; group < s.groups; ++group) {
          patches.noalias() = output_block(s, band, group, const_cast<T*>(k.grad_y)) *
                              group_weights(s, packed, group).transpose();
          scatter_patches(s, band, group, patches, k.grad_x);
        }
      });
    }
  });
}

template <typename T>
void compute(const Conv2dBackwardWeight<T>& k) {
  const Conv2dShape& s = k.shape;
  const bool depthwise = s.is_depthwise();
  const std::int64_t parts = std::min<std::int64_t>(s.batch, num_threads());
  const std::int64_t size = s.weight_size();
  std::vector<T> partial(parts * size);  // one gradient per part, added in order below
  parallel_for(parts, 1, [&](std::int64_t first, std::int64_t last) {
    Matrix<T> patches;
    for (std::int64_t part = first; part < last; ++part) {
      T* grad = partial.data() + part * size;
      for (std::int64_t image = s.batch * part / parts; image < s.batch * (part + 1) / parts;
           ++image) {
        for_each_band(s, image, [&](const Band& band) {
          if (depthwise) return depthwise_backward_weight_band(k, band, grad);
          backward_weight_band(s, band, k.x, k.grad_y, patches, grad);
        });
      }
    }
  });
  for (std::int64_t part = 1; part < parts; ++part) {
    for (std::int64_t i = 0; i < size; ++i) partial[i] += partial[part * size + i];
  }
  for_each_weight(s, [&](std::int64_t oihw, std::int64_t i) { k.grad_w[oihw] = partial[i]; });
}

template void compute(const Conv2d<float>&);
template void compute(const Conv2d<double>&);
template void compute(const Conv2dBackwardInput<float>&);
template void compute(const Conv2dBackwardInput<double>&);
template void compute(const Conv2dBackwardWeight<float>&);
template void compute(const Conv2dBackwardWeight<double>&);

}  // namespace steelyard::kernels::eigen
