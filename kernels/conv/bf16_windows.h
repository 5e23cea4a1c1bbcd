// Convolutions whose operands are rounded to bfloat16, on tensor cores: what a queue of that
// precision and a GPU that has them compute. Sums are float.
#pragma once

#include <optional>
#include <type_traits>

#include "steelyard/kernels/conv/operands.h"
#include "steelyard/kernels/conv/pixel_groups.h"
#include "steelyard/kernels/conv/pixel_product.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/cuda/eight.h"
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

// Eight of them from a multiple of 8 on, where the array begins with eight neighbours.
__device__ inline uint4 packed_eight(const BFloat16 (&values)[kEight]) {
  return *reinterpret_cast<const uint4*>(values);
}
template <typename Code>
__device__ uint4 eight_of(const CodeEights<Code>& x, std::int64_t first) {
  return x.values(x.load(first));
}
__device__ inline uint4 eight_of(const Values<float>& x, std::int64_t first) {
  alignas(16) float given[kEight];
  alignas(16) BFloat16 values[kEight];
  load_span(x.values + first, kEight, given);
#pragma unroll
  for (int i = 0; i < kEight; ++i) values[i] = narrow<BFloat16>(given[i]);
  return packed_eight(values);
}
__device__ inline uint4 eight_of(const WeightValues& w, std::int64_t first) {
  alignas(16) std::int8_t codes[kEight];
  alignas(16) BFloat16 values[kEight];
  load_span(w.codes + first, kEight, codes);
  const bool share = w.sharers % kEight == 0;
  const float scale = w.scales[divide(first, w.sharers)];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const float of_code = share ? scale : w.scales[divide(first + i, w.sharers)];
    values[i] = narrow<BFloat16>(dequantize_code(static_cast<float>(codes[i]), 0.0F, of_code));
  }
  return packed_eight(values);
}
template <typename Code>
bool has_eights(const CodeEights<Code>& x) {
  return is_aligned(x.x, kEight);
}
inline bool has_eights(const Values<float>& x) { return is_aligned(x.values, 16); }
inline bool has_eights(const WeightValues& w) { return is_aligned(w.codes, kEight); }

// y[n] = the rounded values, `wide` where eight_of() may be asked.
template <class Of>
__global__ void __launch_bounds__(kThreads)
    round_kernel(std::int64_t n, bool wide, Of of, BFloat16* y) {
  const std::int64_t first = element_index() * kEight;
  if (wide && first + kEight <= n) {
    *reinterpret_cast<uint4*>(y + first) = eight_of(of, first);
    return;
  }
  const std::int64_t end = smaller(first + kEight, n);
  for (std::int64_t i = first; i < end; ++i) y[i] = Rounded<Of>{of}(i);
}

// y[columns, rows] = the transpose of x[rows, columns], rounded; kSide by kSide elements to a
// block, whose reads are all on their way before the first is used.
struct TransposeTiles {
  static constexpr int kSide = 32, kPitch = kSide + 2, kLines = kThreads / kSide;
  std::int64_t rows, columns;
  std::int64_t column_tiles;

  LaunchShape shape() const {
    return {(rows + kSide - 1) / kSide * column_tiles, kThreads, kSide * kPitch * sizeof(BFloat16)};
  }
};
template <class Of>
__global__ void __launch_bounds__(kThreads)
    transpose_rounded_kernel(TransposeTiles t, Rounded<Of> x, BFloat16* y) {
  constexpr int kSide = TransposeTiles::kSide, kPitch = TransposeTiles::kPitch;
  constexpr int kLines = TransposeTiles::kLines, kOfThread = kSide / kLines;
  auto* const tile = shared_memory<BFloat16>();
  const auto tile_row =
      static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(t.column_tiles));
  const std::int64_t first_row = tile_row * kSide;
  const std::int64_t first_column = (blockIdx.x - tile_row * t.column_tiles) * kSide;
  const auto across = static_cast<int>(threadIdx.x) % kSide;
  const auto down = static_cast<int>(threadIdx.x) / kSide;
  BFloat16 values[kOfThread] = {};
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const std::int64_t row = first_row + down + i * kLines, column = first_column + across;
    if (row < t.rows && column < t.columns) values[i] = x(row * t.columns + column);
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) tile[(down + i * kLines) * kPitch + across] = values[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const std::int64_t row = first_row + across, column = first_column + down + i * kLines;
    if (row < t.rows && column < t.columns) {
      y[column * t.rows + row] = tile[across * kPitch + down + i * kLines];
    }
  }
}

// Gradients of weights [O, C, taps] from sums [chunks, O, runs.row()]: those of all chunks, times
// scale (null: 1); 0 where mask, which may be null, has no one.
struct WeightSums {
  TermRuns runs;
  Divisor row;
  std::int64_t size;  // of a chunk's sums
  std::int64_t chunks;
  const float *sums, *scale;
  const std::uint8_t* mask;
  float* grad_w;

  // Calls f for each array: the emulated GPU checks them.
  template <typename F>
  void each_used(const F& f) const {
    f(sums);
    f(scale);
    f(mask);
    f(grad_w);
  }
};
// A thread has kAtOnce neighbouring columns, channels of one tap.
template <int kAtOnce>
__global__ void __launch_bounds__(kThreads) weight_sums_kernel(std::int64_t n, WeightSums k) {
  const std::int64_t i = element_index() * kAtOnce;
  if (i >= n) return;
  const std::int64_t output = divide(i, k.row);
  const std::int64_t element = k.runs.element(i - output * k.row);
  if (element < 0) return;
  using Columns = Neighbours<float, kAtOnce>;
  Columns sums{};
  read_ahead<4>(
      0, k.chunks, 1,
      [&](std::int64_t chunk) { return load<kAtOnce>(k.sums + chunk * k.size + i); },
      [&](std::int64_t, const Columns& part) { sums += part; });
  const std::int64_t taps = k.runs.kernel_h * k.runs.kernel_w;
  const std::int64_t first = output * k.runs.channels * taps + element;
  const float scale = k.scale == nullptr ? 1.0F : *k.scale;
#pragma unroll
  for (int c = 0; c < kAtOnce; ++c) {
    const std::int64_t at = first + c * taps;
    const bool passes = k.mask == nullptr || (k.mask[at / 8] >> (at % 8) & 1) != 0;
    sums.of[c] = pass_inside(passes, sums.of[c] * scale);
  }
  if (taps == 1) return store(sums, k.grad_w + first);
#pragma unroll
  for (int c = 0; c < kAtOnce; ++c) k.grad_w[first + c * taps] = sums.of[c];
}

// The products of convolutions that are_bf16_windows().
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
    multiply_windows<BFloat16>(queue_,
                               product(x, packed.data(), s_.in_h, s_.in_w, s_.in_channels,
                                       s_.out_channels, s_.out_h(), s_.out_w()),
                               forward_axes(s_), StoreSums<float>{y});
  }

  // Result is float or BFloat16.
  template <class Weights, typename Result>
  void backward_input(const BFloat16* grad_y, const Weights& weights, Result* grad_x) const {
    const Scratch<BFloat16> packed(queue_, s_.weight_size());
    if (s_.is_matrix_product()) {
      round(weights, s_.weight_size(), packed.data());
      return gemm_bf16(queue_, {.m = s_.batch, .n = s_.in_channels, .k = s_.out_channels},
                       bits(grad_y), bits(packed.data()), bits(grad_x));
    }
    const std::int64_t columns = c_.group_columns();
    const TransposeTiles tiles{s_.out_channels, columns,
                               (columns + TransposeTiles::kSide - 1) / TransposeTiles::kSide};
    launch(transpose_rounded_kernel<Weights>, tiles.shape(), stream_of(queue_), tiles,
           Rounded<Weights>{weights}, packed.data());
    multiply_windows<BFloat16>(queue_,
                               product(grad_y, packed.data(), s_.out_h(), s_.out_w(),
                                       s_.out_channels, s_.in_channels, s_.in_h, s_.in_w),
                               backward_axes(s_), StoreSums<Result>{grad_x});
  }

  // The gradient of the weights, for an input of codes.
  template <typename Code>
  void backward_weight(const CodeEights<Code>& x, const float* scale, const BFloat16* grad_y,
                       const std::uint8_t* mask, float* grad_w) const {
    if (s_.is_matrix_product()) {
      const Scratch<BFloat16> values(queue_, s_.input_size());
      round(x, s_.input_size(), values.data());
      return multiply_rows(values.data(), grad_y, {scale, mask, grad_w});
    }
    const PixelGroups groups = pixel_groups(s_);
    const GroupedPixels<Code> pixels(queue_, s_, groups, x.x, x.zero_point);
    add_pixels(groups, grad_y, CodeEights<Code>{pixels.data(), x.zero_point},
               {scale, mask, grad_w});
  }
  // The gradient of the weights, for an input of values, where no product of matrices is asked for.
  void backward_weight(const BFloat16* x, const BFloat16* grad_y, float* grad_w) const {
    add_pixels(single_pixels(s_), grad_y, Bf16Eights{x}, {nullptr, nullptr, grad_w});
  }

 private:
  static const std::uint16_t* bits(const BFloat16* values) {
    return reinterpret_cast<const std::uint16_t*>(values);
  }
  static std::uint16_t* bits(BFloat16* values) { return reinterpret_cast<std::uint16_t*>(values); }
  static float* bits(float* values) { return values; }

  template <class Of>
  void round(const Of& of, std::int64_t n, BFloat16* y) const {
    launch(round_kernel<Of>, {blocks_for((n + kEight - 1) / kEight), kThreads}, stream_of(queue_),
           n, has_eights(of), of, y);
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
  };

  void multiply_rows(const BFloat16* x, const BFloat16* grad_y, const Target& to) const {
    const GemmShape shape{
        .m = s_.out_channels, .n = s_.in_channels, .k = s_.batch, .transpose_a = true};
    const Scratch<float> sums(queue_, s_.weight_size());
    gemm_bf16(queue_, shape, bits(grad_y), bits(x), sums.data());
    add_chunks(1, {s_, single_pixels(s_)}, sums.data(), to);
  }

  // The sums over the output pixels, of an input in groups.
  template <class Right>
  void add_pixels(const PixelGroups& groups, const BFloat16* grad_y, const Right& x,
                  const Target& to) const {
    const TermRuns runs(s_, groups);
    PixelProduct p{.grad = grad_y,
                   .pixels = c_.pixels(),
                   .rows = static_cast<int>(s_.out_channels),
                   .columns = static_cast<int>(runs.row()),
                   .channels = static_cast<int>(groups.codes),
                   .kernel_w = static_cast<int>(groups.kernel_w),
                   .in_h = static_cast<int>(s_.in_h),
                   .in_w = static_cast<int>(groups.line),
                   .out_h = static_cast<int>(s_.out_h()),
                   .out_w = static_cast<int>(s_.out_w()),
                   .stride_h = static_cast<int>(s_.stride_h),
                   .stride_w = static_cast<int>(groups.stride_w),
                   .pad_h = static_cast<int>(s_.pad_h),
                   .pad_w = static_cast<int>(groups.pad_w),
                   .dilation_h = static_cast<int>(s_.dilation_h),
                   .dilation_w = static_cast<int>(groups.dilation_w)};
    using Large = TileShape<BFloat16, 128, 128>;
    using Wide = TileShape<BFloat16, 64, 128>;
    using Small = TileShape<BFloat16, 64, 64>;
    const PixelTiling large = tiling<Large, Right>(p), wide = tiling<Wide, Right>(p),
                      small = tiling<Small, Right>(p);
    const auto finish = [&](const PixelTiling& cut, auto kernel, std::size_t shared_bytes) {
      const Scratch<float> sums(queue_, cut.chunks() * p.rows * p.columns);
      cut.apply(p);
      p.sums = sums.data();
      launch(kernel, {cut.blocks(), kTileThreads, shared_bytes}, stream_of(queue_), p, x);
      add_chunks(cut.chunks(), runs, sums.data(), to);
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
  static PixelTiling tiling(const PixelProduct& p) {
    return {Tile::kTileRows, Tile::kTileColumns,
            tiles_at_once<pixel_product_kernel<Tile, Right>>(Tile::kSharedBytes), p};
  }

  void add_chunks(std::int64_t chunks, const TermRuns& runs, const float* sums,
                  const Target& to) const {
    const std::int64_t size = s_.out_channels * runs.row();
    const WeightSums all{runs, runs.row(), size, chunks, sums, to.scale, to.mask, to.grad_w};
    constexpr int kAtOnce = 4;
    if (s_.in_channels % kAtOnce == 0 && begin_with_neighbours<kAtOnce>(sums, to.grad_w)) {
      launch(weight_sums_kernel<kAtOnce>, {blocks_for(size / kAtOnce), kThreads}, stream_of(queue_),
             size, all);
    } else {
      launch(weight_sums_kernel<1>, {blocks_for(size), kThreads}, stream_of(queue_), size, all);
    }
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
// Gradients of such a convolution: cuBLAS takes products of matrices of any size.
inline bool are_bf16_gradients(const CudaQueue& queue, const Conv2dShape& s, std::int64_t inputs) {
  return are_bf16_windows(queue, s, s.is_matrix_product() ? 1 : inputs,
                          s.is_matrix_product() ? 1 : 8);
}

}  // namespace cuda
}  // namespace steelyard::kernels
