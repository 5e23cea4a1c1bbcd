// Convolutions whose operands are rounded to bfloat16, on tensor cores: what a queue of that
// precision and a GPU that has them compute. Sums are float.
#pragma once

#include <optional>
#include <type_traits>

#include "steelyard/kernels/conv/code_patches.h"
#include "steelyard/kernels/conv/operands.h"
#include "steelyard/kernels/conv/pixel_product.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/cuda/gemm.h"

namespace steelyard::kernels {

// Emitted by kernels/convert.
extern template void run(const CudaQueue&, const Convert<float, BFloat16>&);
extern template void run(const CudaQueue&, const Convert<BFloat16, float>&);

namespace cuda {

// Values as V: those of the caller, or converted ones.
template <typename V>
class ValuesAs {
 public:
  ValuesAs(const CudaQueue&, std::int64_t, const V* given) : values_(given) {}
  template <typename Other>
  ValuesAs(const CudaQueue& queue, std::int64_t n, const Other* given) {
    converted_.emplace(queue, n);
    run(queue, Convert<Other, V>{.n = n, .x = given, .y = converted_->data()});
    values_ = converted_->data();
  }
  const V* data() const { return values_; }

 private:
  std::optional<Scratch<V>> converted_;
  const V* values_ = nullptr;
};
using Bf16Values = ValuesAs<BFloat16>;
using FloatValues = ValuesAs<float>;

// What an array or codes stand for, rounded.
template <class Of>
struct Rounded {
  Of of;
  __device__ BFloat16 operator()(std::int64_t i) const {
    return narrow<BFloat16>(static_cast<float>(of(i)));
  }
};
// Codes less their zero point, whose scale is applied to sums.
template <typename Code>
struct CodeDifferences {
  const Code* codes;
  const std::int32_t* zero_point;
  __device__ float operator()(std::int64_t i) const {
    return static_cast<float>(codes[i] - *zero_point);
  }
};

template <class Of>
__global__ void round_kernel(std::int64_t n, Rounded<Of> of, BFloat16* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = of(i);
}

// y[columns, rows] = the transpose of x[rows, columns], rounded; 32 by 32 elements to a block.
template <class Of>
__global__ void __launch_bounds__(kThreads)
    transpose_rounded_kernel(std::int64_t rows, std::int64_t columns, std::int64_t column_tiles,
                             Rounded<Of> x, BFloat16* y) {
  constexpr int kSide = 32, kPitch = kSide + 2, kLines = kThreads / kSide;
  auto* const tile = shared_memory<BFloat16>();
  const std::int64_t tile_row = blockIdx.x / column_tiles * kSide;
  const std::int64_t tile_column = blockIdx.x % column_tiles * kSide;
  const auto across = static_cast<int>(threadIdx.x) % kSide;
  const auto down = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
  for (int i = down; i < kSide; i += kLines) {
    if (tile_row + i < rows && tile_column + across < columns) {
      tile[i * kPitch + across] = x((tile_row + i) * columns + tile_column + across);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = down; i < kSide; i += kLines) {
    if (tile_column + i < columns && tile_row + across < rows) {
      y[(tile_column + i) * rows + tile_row + across] = tile[across * kPitch + i];
    }
  }
}

// Gradients of weights [O, C, taps] from sums [chunks, O, row], whose columns are (tap, channel):
// those of all chunks, times scale (null: 1); 0 where mask, which may be null, has no one. `added`:
// to those of pixels before.
struct WeightSums {
  Divisor row, channels, taps;
  std::int64_t size;  // of a chunk's sums
  std::int64_t chunks;
  const float *sums, *scale;
  const std::uint8_t* mask;
  bool added;
  float* grad_w;
};
static __global__ void __launch_bounds__(kThreads) weight_sums_kernel(std::int64_t n, WeightSums k) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t output = divide(i, k.row);
  const std::int64_t column = i - output * k.row;
  const std::int64_t tap = divide(column, k.channels);
  if (tap >= k.taps) return;
  float sum = 0;
  read_ahead<4>(
      0, k.chunks, 1, [&](std::int64_t chunk) { return k.sums[chunk * k.size + i]; },
      [&](std::int64_t, float part) { sum += part; });
  const std::int64_t at =
      (output * k.channels + (column - tap * k.channels)) * k.taps + tap;
  const bool passes = k.mask == nullptr || (k.mask[at / 8] >> (at % 8) & 1) != 0;
  const float passed = pass_inside(passes, k.scale == nullptr ? sum : sum * *k.scale);
  k.grad_w[at] = k.added ? k.grad_w[at] + passed : passed;
}

// Of convolutions that are_bf16_windows().
class Bf16Windows {
 public:
  Bf16Windows(const CudaQueue& queue, const Conv2dShape& s)
      : queue_(queue), s_(s), c_(sizes_of(s)) {}

  // Without a bias.
  template <class Weights>
  void forward(const BFloat16* x, const Weights& weights, float* y) const {
    const Scratch<BFloat16> packed(queue_, s_.weight_size());
    launch_elements(queue_, pack_kernel<BFloat16, Rounded<Weights>>, s_.weight_size(),
                    WeightOrder(c_), Rounded<Weights>{weights}, packed.data());
    multiply_windows<BFloat16>(
        queue_,
        product(x, packed.data(), s_.in_h, s_.in_w, s_.in_channels, s_.out_channels, s_.out_h(),
                s_.out_w()),
        forward_axes(s_), StoreSums<float>{y});
  }

  template <class Weights>
  void backward_input(const BFloat16* grad_y, const Weights& weights, float* grad_x) const {
    const Scratch<BFloat16> packed(queue_, s_.weight_size());
    if (s_.is_matrix_product()) {
      launch_elements(queue_, round_kernel<Weights>, s_.weight_size(), Rounded<Weights>{weights},
                      packed.data());
      return gemm_bf16(queue_, {.m = s_.batch, .n = s_.in_channels, .k = s_.out_channels},
                       bits(grad_y), bits(packed.data()), grad_x);
    }
    const std::int64_t columns = c_.group_columns();
    const std::int64_t column_tiles = (columns + 31) / 32;
    launch(transpose_rounded_kernel<Weights>,
           {(s_.out_channels + 31) / 32 * column_tiles, kThreads, 32 * 34 * sizeof(BFloat16)},
           stream_of(queue_), s_.out_channels, columns, column_tiles, Rounded<Weights>{weights},
           packed.data());
    multiply_windows<BFloat16>(
        queue_,
        product(grad_y, packed.data(), s_.out_h(), s_.out_w(), s_.out_channels, s_.in_channels,
                s_.in_h, s_.in_w),
        backward_axes(s_), StoreSums<float>{grad_x});
  }

  // Of codes.
  template <typename Code>
  void backward_weight(const CodeEights<Code>& x, const float* scale, const BFloat16* grad_y,
                       const std::uint8_t* mask, float* grad_w) const {
    if (s_.in_channels % 8 != 0 || !is_aligned(x.x, 8)) {
      return for_each_code_patches(
          queue_, c_, x.x, x.zero_point,
          [&](std::int64_t first, std::int64_t pixels, const Code* patches) {
            add_pixels(patch_pixels(grad_y + first * s_.out_channels, pixels),
                       CodeEights<Code>{patches, x.zero_point},
                       {scale, mask, grad_w, /*added=*/first > 0});
          });
    }
    if (!s_.is_matrix_product()) return add_pixels(window_pixels(grad_y), x, {scale, mask, grad_w});
    using Differences = CodeDifferences<Code>;
    const Scratch<BFloat16> values(queue_, s_.input_size());
    launch_elements(queue_, round_kernel<Differences>, s_.input_size(),
                    Rounded<Differences>{{x.x, x.zero_point}}, values.data());
    multiply_rows(values.data(), grad_y, {scale, mask, grad_w});
  }
  // Of values.
  void backward_weight(const BFloat16* x, const BFloat16* grad_y, float* grad_w) const {
    if (!s_.is_matrix_product()) {
      return add_pixels(window_pixels(grad_y), Bf16Eights{x}, {nullptr, nullptr, grad_w});
    }
    multiply_rows(x, grad_y, {nullptr, nullptr, grad_w});
  }

 private:
  static const std::uint16_t* bits(const BFloat16* values) {
    return reinterpret_cast<const std::uint16_t*>(values);
  }

  WindowProduct product(const BFloat16* x, const BFloat16* w, std::int64_t in_h, std::int64_t in_w,
                        std::int64_t channels, std::int64_t outputs, std::int64_t out_h,
                        std::int64_t out_w) const {
    return {.x = x,
            .w = w,
            .images = s_.batch,
            .in_h = static_cast<int>(in_h),
            .in_w = static_cast<int>(in_w),
            .pixel_bytes = channels * 2,
            .kernel_w = static_cast<int>(s_.kernel_w),
            .taps = static_cast<int>(c_.taps),
            .outputs = static_cast<int>(outputs),
            .out_h = static_cast<int>(out_h),
            .out_w = static_cast<int>(out_w),
            .zero_point = nullptr};
  }

  // What is made of the sums for weights.
  struct Target {
    const float* scale;
    const std::uint8_t* mask;
    float* grad_w;
    bool added = false;
  };

  void multiply_rows(const BFloat16* x, const BFloat16* grad_y, const Target& to) const {
    const GemmShape shape{
        .m = s_.out_channels, .n = s_.in_channels, .k = s_.batch, .transpose_a = true};
    if (to.scale == nullptr && to.mask == nullptr) {
      return gemm_bf16(queue_, shape, bits(grad_y), bits(x), to.grad_w);
    }
    const Scratch<float> sums(queue_, s_.weight_size());
    gemm_bf16(queue_, shape, bits(grad_y), bits(x), sums.data());
    add_chunks(1, s_.in_channels, sums.data(), to);
  }

  PixelProduct window_pixels(const BFloat16* grad_y) const {
    return {.grad = grad_y,
            .pixels = c_.pixels(),
            .rows = static_cast<int>(s_.out_channels),
            .columns = static_cast<int>(c_.group_columns()),
            .channels = static_cast<int>(s_.in_channels),
            .kernel_w = static_cast<int>(s_.kernel_w),
            .in_h = static_cast<int>(s_.in_h),
            .in_w = static_cast<int>(s_.in_w),
            .out_h = static_cast<int>(s_.out_h()),
            .out_w = static_cast<int>(s_.out_w()),
            .stride_h = static_cast<int>(s_.stride_h),
            .stride_w = static_cast<int>(s_.stride_w),
            .pad_h = static_cast<int>(s_.pad_h),
            .pad_w = static_cast<int>(s_.pad_w),
            .dilation_h = static_cast<int>(s_.dilation_h),
            .dilation_w = static_cast<int>(s_.dilation_w)};
  }
  // Of patches, which are rows.
  PixelProduct patch_pixels(const BFloat16* grad_y, std::int64_t pixels) const {
    const auto row = static_cast<int>(code_patch_row(c_.group_columns()));
    return {.grad = grad_y,
            .pixels = pixels,
            .rows = static_cast<int>(s_.out_channels),
            .columns = row,
            .channels = row};
  }

  template <class Right>
  void add_pixels(PixelProduct p, const Right& x, const Target& to) const {
    using Large = TileShape<BFloat16, 128, 128>;
    using Wide = TileShape<BFloat16, 64, 128>;
    using Small = TileShape<BFloat16, 64, 64>;
    const PixelTiling large = tiling<Large, Right>(p, 1.0), wide = tiling<Wide, Right>(p, 1.15),
                      small = tiling<Small, Right>(p, 1.4);
    const auto finish = [&](const PixelTiling& cut, auto kernel, std::size_t shared_bytes) {
      const Scratch<float> sums(queue_, cut.chunks() * p.rows * p.columns);
      cut.apply(p);
      p.sums = sums.data();
      launch(kernel, {cut.blocks(), kTileThreads, shared_bytes}, stream_of(queue_), p, x);
      add_chunks(cut.chunks(), p.columns, sums.data(), to);
    };
    if (large.cost() <= wide.cost() && large.cost() <= small.cost()) {
      finish(large, pixel_product_kernel<Large, Right>, Large::kSharedBytes);
    } else if (wide.cost() <= small.cost()) {
      finish(wide, pixel_product_kernel<Wide, Right>, Wide::kSharedBytes);
    } else {
      finish(small, pixel_product_kernel<Small, Right>, Small::kSharedBytes);
    }
  }
  template <class Tile, class Right>
  static PixelTiling tiling(const PixelProduct& p, double of_sum) {
    return {Tile::kTileRows, Tile::kTileColumns,
            tiles_at_once<pixel_product_kernel<Tile, Right>>(Tile::kSharedBytes), of_sum, p};
  }

  // Of rows of sums.
  void add_chunks(std::int64_t chunks, std::int64_t row, const float* sums,
                  const Target& to) const {
    const std::int64_t size = s_.out_channels * row;
    launch_elements(queue_, weight_sums_kernel, size,
                    WeightSums{row, c_.channels, c_.taps, size, chunks, sums, to.scale, to.mask,
                               to.added, to.grad_w});
  }

  const CudaQueue& queue_;
  const Conv2dShape& s_;
  ConvSizes c_;
};

// Whether a queue's convolution is computed so, if its channels are multiples of these numbers.
inline bool are_bf16_windows(const CudaQueue& queue, const Conv2dShape& s, std::int64_t inputs,
                             std::int64_t outputs) {
  return queue.precision == MatmulPrecision::kBf16 && fits_windows(s) && s.in_channels > 0 &&
         s.in_channels % inputs == 0 && s.out_channels % outputs == 0 && has_tensor_cores();
}

}  // namespace cuda
}  // namespace steelyard::kernels
