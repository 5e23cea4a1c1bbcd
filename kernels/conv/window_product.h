// Convolutions on tensor cores without patches in memory: a product of matrices whose left rows are
// read through the windows of pixels (implicit GEMM; Chetlur et al., arXiv:1410.0759). The rows of
// the right matrix are weights [outputs, taps, channels]. Forward, and backward to the input, whose
// pixels of one remainder of the stride read output pixels through windows of their own.
#pragma once

#include <algorithm>
#include <numeric>

#include "steelyard/kernels/cuda/neighbours.h"
#include "steelyard/kernels/cuda/product_tile.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels::cuda {

// The longest stride, and the largest image, that the kernels below take.
inline constexpr std::int64_t kLongestStride = 4;
inline constexpr std::int64_t kLargestSide = 8192;

// What is read along one axis: tap t of output o reads place o * stride + first + t * step with the
// weights weight_first + t * weight_step, and o is written at out_first + o * out_step.
struct WindowAxis {
  int stride = 1, first = 0, step = 1;
  int taps = 0;
  int weight_first = 0, weight_step = 1;
  int out_first = 0, out_step = 1;
  Divisor outputs = 1;
};

inline WindowAxis forward_axis(std::int64_t outputs, std::int64_t kernel, std::int64_t stride,
                               std::int64_t pad, std::int64_t dilation) {
  WindowAxis axis;
  axis.stride = static_cast<int>(stride);
  axis.first = static_cast<int>(-pad);
  axis.step = static_cast<int>(dilation);
  axis.taps = static_cast<int>(kernel);
  axis.outputs = outputs;
  return axis;
}

// The axis of the inputs whose remainder by the stride is `rest`: input i is under tap t of output
// (i + pad - t * dilation) / stride, where that is an integer.
inline WindowAxis backward_axis(std::int64_t rest, std::int64_t inputs, std::int64_t kernel,
                                std::int64_t stride, std::int64_t pad, std::int64_t dilation) {
  WindowAxis axis;
  axis.out_first = static_cast<int>(rest);
  axis.out_step = static_cast<int>(stride);
  axis.outputs = inputs > rest ? (inputs - rest + stride - 1) / stride : 0;
  const std::int64_t period = stride / std::gcd(stride, dilation);  // of taps that fit
  std::int64_t tap = 0;
  while (tap < std::min(period, kernel) && (rest + pad - tap * dilation) % stride != 0) ++tap;
  if (tap >= std::min(period, kernel)) return axis;  // without taps: no window holds such inputs
  axis.taps = static_cast<int>((kernel - 1 - tap) / period + 1);
  axis.first = static_cast<int>((rest + pad - tap * dilation) / stride);
  axis.step = static_cast<int>(-period * dilation / stride);
  axis.weight_first = static_cast<int>(tap);
  axis.weight_step = static_cast<int>(period);
  return axis;
}

// The pixels of an output, in parts that read alike.
struct WindowAxes {
  WindowAxis rows[kLongestStride], columns[kLongestStride];
  int row_parts = 1, column_parts = 1;

  std::int64_t most_pixels(std::int64_t images) const {
    return images * rows[0].outputs * columns[0].outputs;  // the first part is the largest
  }
};

inline WindowAxes forward_axes(const Conv2dShape& s) {
  WindowAxes axes;
  axes.rows[0] = forward_axis(s.out_h(), s.kernel_h, s.stride_h, s.pad_h, s.dilation_h);
  axes.columns[0] = forward_axis(s.out_w(), s.kernel_w, s.stride_w, s.pad_w, s.dilation_w);
  return axes;
}
inline WindowAxes backward_axes(const Conv2dShape& s) {
  WindowAxes axes;
  axes.row_parts = static_cast<int>(s.stride_h);
  axes.column_parts = static_cast<int>(s.stride_w);
  for (int rest = 0; rest < axes.row_parts; ++rest) {
    axes.rows[rest] = backward_axis(rest, s.in_h, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h);
  }
  for (int rest = 0; rest < axes.column_parts; ++rest) {
    axes.columns[rest] = backward_axis(rest, s.in_w, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w);
  }
  return axes;
}

// Whether the kernels below take a convolution's sizes.
inline bool fits_windows(const Conv2dShape& s) {
  return s.groups == 1 && s.batch * s.in_h * s.in_w <= INT32_MAX &&
         s.batch * s.out_h() * s.out_w() <= INT32_MAX && s.stride_h <= kLongestStride &&
         s.stride_w <= kLongestStride &&
         std::max({s.in_h, s.in_w, s.out_h(), s.out_w()}) <= kLargestSide &&
         std::max(s.pad_h + s.dilation_h * s.kernel_h, s.pad_w + s.dilation_w * s.kernel_w) <=
             kLargestSide;
}

struct WindowProduct {
  const void* x;  // [images, in_h, in_w, channels]
  const void* w;  // [outputs, taps, channels]
  std::int64_t images;
  int in_h, in_w;
  std::int64_t pixel_bytes;  // of the channels: a multiple of 8
  int kernel_w, taps;        // of the weights
  int outputs;
  int out_h, out_w;                // of what is written
  const std::int32_t* zero_point;  // of x, what the padding holds; null: 0
};

// The place of an output pixel of a part; -1 past the last.
struct OutputRows {
  std::int64_t first, pixels;
  Divisor rows, columns;
  int row_first, row_step, column_first, column_step;
  int out_h, out_w;

  __device__ std::int64_t operator()(int row) const {
    const std::int64_t pixel = first + row;
    if (pixel >= pixels) return -1;
    const std::int64_t line = divide(pixel, columns);
    const std::int64_t image = divide(line, rows);
    const std::int64_t h = row_first + (line - image * rows) * row_step;
    return (image * out_h + h) * out_w + column_first + (pixel - line * columns) * column_step;
  }
};

// Brings the operands of one tile to shared memory, kChunk bytes at a time.
template <class Tile, int kChunk>
class WindowLoads {
 public:
  static constexpr int kChunks = 128 / kChunk;           // of a row
  static constexpr int kPass = kTileThreads / kChunks;   // rows at a time, a multiple of 8
  static constexpr int kLeft = Tile::kTileRows / kPass;  // rows of a thread
  static constexpr int kRight = Tile::kTileColumns / kPass;

  __device__ WindowLoads(const WindowProduct& p, const WindowAxis& rows, const WindowAxis& columns,
                         std::int64_t first_pixel, std::int64_t pixels, int first_column)
      : p_(p), rows_(rows), columns_(columns) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int line = static_cast<int>(threadIdx.x) / kChunks;
    place_ = place_of_piece(line, chunk * kChunk / kPieceBytes) + chunk * kChunk % kPieceBytes;
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const std::int64_t pixel = first_pixel + line + i * kPass;
      const bool exists = pixel < pixels;
      const std::int64_t output_row = divide(exists ? pixel : 0, columns.outputs);
      const std::int64_t image = divide(output_row, rows.outputs);
      const auto h = static_cast<int>(output_row - image * rows.outputs) * rows.stride;
      const auto w =
          static_cast<int>((exists ? pixel : 0) - output_row * columns.outputs) * columns.stride;
      from_[i] = static_cast<const unsigned char*>(p.x) +
                 ((image * p.in_h + h) * p.in_w + w) * p.pixel_bytes;
      // What is outside of an image with every tap.
      corner_[i] = exists ? h << 16 | w : INT32_MIN;
    }
    const std::int64_t weight_bytes = p.taps * p.pixel_bytes;
    weights_ = static_cast<const unsigned char*>(p.w) + (first_column + line) * weight_bytes;
    weight_step_ = kPass * weight_bytes;
    outputs_left_ = p.outputs - first_column - line;
    padding_ = p.zero_point == nullptr ? 0U : (*p.zero_point & 0xFF) * 0x01010101U;
    channel_ = chunk * kChunk;
    settle();
  }

  __device__ void start(unsigned char* left) {
    const bool has_tap = tap_row_ < rows_.taps;
    const int h_step = rows_.first + tap_row_ * rows_.step;
    const int w_step = columns_.first + tap_column_ * columns_.step;
    const std::int64_t step =
        (static_cast<std::int64_t>(h_step) * p_.in_w + w_step) * p_.pixel_bytes + channel_;
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int h = (corner_[i] >> 16) + h_step;
      const int w = (corner_[i] & 0xFFFF) + w_step;
      const bool inside = has_tap && static_cast<unsigned>(h) < static_cast<unsigned>(p_.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(p_.in_w);
      bring(left + place_ + i * kPass * 128, from_[i] + step, inside, padding_);
    }
    unsigned char* const right = left + Tile::kTileRows * 128;
    const int tap = (rows_.weight_first + tap_row_ * rows_.weight_step) * p_.kernel_w +
                    columns_.weight_first + tap_column_ * columns_.weight_step;
    const unsigned char* weight = weights_ + tap * p_.pixel_bytes + channel_;
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      bring(right + place_ + i * kPass * 128, weight + i * weight_step_,
            has_tap && i * kPass < outputs_left_, 0);
    }
    channel_ += 128;
    settle();
  }

 private:
  // Channel and tap of the thread's next chunk.
  __device__ void settle() {
    while (channel_ >= p_.pixel_bytes) {
      channel_ -= p_.pixel_bytes;
      if (++tap_column_ < columns_.taps) continue;
      tap_column_ = 0;
      ++tap_row_;
    }
  }
  __device__ static void bring(unsigned char* to, const unsigned char* from, bool exists,
                               std::uint32_t otherwise) {
    if (exists) return copy_later<kChunk>(to, from);
    if constexpr (kChunk == 16) {
      *reinterpret_cast<uint4*>(to) = make_uint4(otherwise, otherwise, otherwise, otherwise);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(otherwise, otherwise);
    }
  }

  const WindowProduct& p_;
  const WindowAxis &rows_, &columns_;
  const unsigned char* from_[kLeft];
  int corner_[kLeft];
  const unsigned char* weights_;
  std::int64_t weight_step_;
  int outputs_left_, place_;
  std::uint32_t padding_;
  std::int64_t channel_;
  int tap_row_ = 0, tap_column_ = 0;
};

// A block has a tile of the outputs of one part; blocks that follow each other have the same
// pixels. epilogue(tile, shared memory, rows, first column) takes the sums.
template <class Shape, int kChunk, class Epilogue>
__global__ void __launch_bounds__(kTileThreads, 2)
    window_product_kernel(WindowProduct p, WindowAxes axes, int column_tiles, Epilogue epilogue) {
  const auto parts = static_cast<unsigned>(axes.row_parts * axes.column_parts);
  const unsigned above = blockIdx.x / static_cast<unsigned>(column_tiles);
  const unsigned part = above % parts;
  const auto first_column =
      static_cast<int>(blockIdx.x - above * column_tiles) * Shape::kTileColumns;
  const WindowAxis& rows = axes.rows[part / axes.column_parts];
  const WindowAxis& columns = axes.columns[part % axes.column_parts];
  const std::int64_t pixels = p.images * rows.outputs * columns.outputs;
  const std::int64_t first_pixel = std::int64_t{above / parts} * Shape::kTileRows;
  if (first_pixel >= pixels) return;
  auto* const shared = shared_memory<unsigned char>();
  ProductTile<Shape> tile;
  WindowLoads<Shape, kChunk> loads(p, rows, columns, first_pixel, pixels, first_column);
  const std::int64_t bytes = rows.taps * columns.taps * p.pixel_bytes;
  for_each_stage<ProductTile<Shape>, /*kAddsFirst=*/true>(
      static_cast<int>((bytes + 127) / 128),
      [&](int slot) { loads.start(shared + slot * Shape::kStageBytes); }, [](int) {},
      [&](int slot) { tile.add_rows(shared + slot * Shape::kStageBytes); });
  epilogue(tile, shared,
           OutputRows{first_pixel, pixels, rows.outputs, columns.outputs, rows.out_first,
                      rows.out_step, columns.out_first, columns.out_step, p.out_h, p.out_w},
           first_column, p.outputs);
}

// A kernel's blocks that run at once, on the first device that is asked.
template <auto kKernel>
std::int64_t tiles_at_once(std::size_t shared_bytes) {
  static const std::int64_t blocks = resident_blocks(kKernel, kTileThreads, shared_bytes);
  return std::max<std::int64_t>(1, blocks);
}

// One way to cut a product into tiles, and what it costs: waves of tiles. A tile waits for the rows
// that it reads through the second-level cache, then has its sums to write.
template <class Shape>
std::int64_t cost_of_tiles(std::int64_t tiles, std::int64_t at_once, std::int64_t stages) {
  constexpr std::int64_t kSumsOfRow = 16;  // that are written in the time in which a row is read
  const std::int64_t of_tile = stages * (Shape::kTileRows + Shape::kTileColumns) +
                               Shape::kTileRows * Shape::kTileColumns / kSumsOfRow;
  return (tiles + at_once - 1) / at_once * at_once * of_tile;
}

template <typename Operand, class Epilogue>
class WindowProductLaunch {
 public:
  WindowProductLaunch(const CudaQueue& queue, const WindowProduct& p, const WindowAxes& axes,
                      const Epilogue& epilogue)
      : queue_(queue), p_(p), axes_(axes), epilogue_(epilogue) {}

  void run() const {
    if (p_.pixel_bytes % 16 != 0) return start<TileShape<Operand, 64, 64>, 8>();
    using Large = TileShape<Operand, 128, 128>;
    using Medium = TileShape<Operand, 128, 64>;
    using Small = TileShape<Operand, 64, 64>;
    const std::int64_t large = cost<Large>(), medium = cost<Medium>(), small = cost<Small>();
    if (large <= medium && large <= small) return start<Large, 16>();
    medium <= small ? start<Medium, 16>() : start<Small, 16>();
  }

 private:
  template <class Tile>
  std::int64_t column_tiles() const {
    return (p_.outputs + Tile::kTileColumns - 1) / Tile::kTileColumns;
  }
  template <class Tile>
  std::int64_t tiles() const {
    const std::int64_t pixels = axes_.most_pixels(p_.images);
    return (pixels + Tile::kTileRows - 1) / Tile::kTileRows * axes_.row_parts * axes_.column_parts *
           column_tiles<Tile>();
  }
  template <class Shape>
  std::int64_t cost() const {
    const std::int64_t stages = (p_.taps * p_.pixel_bytes + 127) / 128;
    const std::int64_t at_once =
        tiles_at_once<window_product_kernel<Shape, 16, Epilogue>>(Shape::kSharedBytes);
    return cost_of_tiles<Shape>(tiles<Shape>(), at_once, stages);
  }
  template <class Tile, int kChunk>
  void start() const {
    launch(window_product_kernel<Tile, kChunk, Epilogue>,
           {tiles<Tile>(), kTileThreads, Tile::kSharedBytes}, stream_of(queue_), p_, axes_,
           static_cast<int>(column_tiles<Tile>()), epilogue_);
  }

  const CudaQueue& queue_;
  const WindowProduct& p_;
  const WindowAxes& axes_;
  const Epilogue& epilogue_;
};

// Operand is a type of codes, whose weights are int8_t, or BFloat16.
template <typename Operand, class Epilogue>
void multiply_windows(const CudaQueue& queue, const WindowProduct& p, const WindowAxes& axes,
                      const Epilogue& epilogue) {
  WindowProductLaunch<Operand, Epilogue>(queue, p, axes, epilogue).run();
}

// An epilogue: y[row, column] = the sum, rounded to bfloat16 if that is T.
template <typename T>
struct StoreSums {
  T* y;

  template <class Tile>
  __device__ void operator()(const Tile& tile, unsigned char*, const OutputRows& rows,
                             int first_column, int outputs) const {
    const bool even = outputs % 2 == 0 && is_aligned(y, 2 * sizeof(T));
    tile.for_each_pair([&](int row, int column, auto a, auto b) {
      const std::int64_t at = rows(row);
      const int output = first_column + column;
      if (at < 0 || output >= outputs) return;
      T* const to = y + at * outputs + output;
      if (even) {
        store(Neighbours<T, 2>{{as_stored(a), as_stored(b)}}, to);
      } else {
        to[0] = as_stored(a);
        if (output + 1 < outputs) to[1] = as_stored(b);
      }
    });
  }

 private:
  template <typename Sum>
  __device__ static T as_stored(Sum sum) {
    if constexpr (std::is_same_v<Sum, T>) {
      return sum;
    } else {
      return narrow<T>(sum);
    }
  }
};

}  // namespace steelyard::kernels::cuda
