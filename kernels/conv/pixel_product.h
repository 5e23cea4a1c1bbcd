// Gradients of a convolution's weights on tensor cores without patches in memory: sums over output
// pixels, of their gradients by the inputs under each tap. The pixels are cut into chunks, whose
// sums a second kernel adds in their order.
#pragma once

#include <algorithm>
#include <limits>

#include "steelyard/kernels/conv/window_product.h"

namespace steelyard::kernels::cuda {

// Eight neighbouring channels of an input as bfloat16. Codes less their zero point are exact.
template <typename Code>
struct CodeEights {
  const Code* x;
  const std::int32_t* zero_point;

  using Raw = uint2;
  __device__ Raw load(std::int64_t at) const { return *reinterpret_cast<const uint2*>(x + at); }
  // What stands for zeros.
  __device__ Raw none() const {
    const std::uint32_t four = (*zero_point & 0xFF) * 0x01010101U;
    return make_uint2(four, four);
  }
  __device__ uint4 values(const Raw& raw) const {
    return make_uint4(pair<0>(raw.x), pair<2>(raw.x), pair<0>(raw.y), pair<2>(raw.y));
  }
  // One of them.
  __device__ float operator()(std::int64_t i) const {
    return static_cast<float>(x[i] - *zero_point);
  }

 private:
  // Two codes from byte `first` on. A float of 2^23 and more has a code of 8 bits as its last ones;
  // differences of codes have at most 8 bits, too, which are a bfloat16's.
  template <int first>
  __device__ std::uint32_t pair(std::uint32_t codes) const {
    if constexpr (std::is_signed_v<Code>) codes ^= 0x80808080U;  // from -128 on
    const float zero =
        8388608.0F + static_cast<float>(*zero_point + (std::is_signed_v<Code> ? 128 : 0));
    const float low = __uint_as_float(__byte_perm(codes, 0x4B000000U, 0x7440U | first)) - zero;
    const float high =
        __uint_as_float(__byte_perm(codes, 0x4B000000U, 0x7440U | (first + 1))) - zero;
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632U);
  }
};
struct Bf16Eights {
  const BFloat16* x;

  using Raw = uint4;
  __device__ Raw load(std::int64_t at) const { return *reinterpret_cast<const uint4*>(x + at); }
  __device__ Raw none() const { return make_uint4(0, 0, 0, 0); }
  __device__ uint4 values(const Raw& raw) const { return raw; }
};

struct PixelProduct {
  const BFloat16* grad = nullptr;  // [pixels, rows]
  std::int64_t pixels = 0;
  int rows = 0, columns = 0;  // of the sums; a column is (tap, channel), channels side by side
  int channels = 0, kernel_w = 1;
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  // Numbers of PixelTiling: pixels of a block, a multiple of kPanelTerms.
  std::int64_t chunk = 0;
  int row_tiles = 0, column_tiles = 0;
  float* sums = nullptr;  // [chunks, rows, columns]
};

// Brings the operands of one tile to shared memory. The places of a thread's inputs move on by sums
// alone: places of eight pixels by divisions took longer than the products.
template <class Shape, class Right>
class PixelLoads {
 public:
  static constexpr int kLeftPieces = Shape::kTileRows / 8, kRightPieces = Shape::kTileColumns / 8;
  static constexpr int kLeftPass = kTileThreads / kLeftPieces;  // pixels at a time
  static constexpr int kRightPass = kTileThreads / kRightPieces;
  static constexpr int kRight = kPanelTerms / kRightPass;  // pieces of a thread

  __device__ PixelLoads(const PixelProduct& p, const Right& right, std::int64_t chunk,
                        int first_row, int first_column)
      : p_(p), right_(right) {
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t first = chunk * p.chunk;
    const std::int64_t pixels = p.pixels - first < p.chunk ? p.pixels - first : p.chunk;
    const int row = first_row + thread % kLeftPieces * 8, left_pixel = thread / kLeftPieces;
    left_ = p.grad + (first + left_pixel) * p.rows + row;
    left_pixels_ = row < p.rows ? static_cast<int>(pixels) - left_pixel : 0;
    left_place_ = place_in_panels(left_pixel, thread % kLeftPieces);

    const int column = first_column + thread % kRightPieces * 8, pixel = thread / kRightPieces;
    right_pixels_ = column < p.columns ? static_cast<int>(pixels) - pixel : 0;
    right_place_ = place_in_panels(pixel, thread % kRightPieces);
    const int tap = column / p.channels;
    const std::int64_t line = (first + pixel) / p.out_w, image = line / p.out_h;
    column_ = static_cast<int>(first + pixel - line * p.out_w);
    line_ = static_cast<int>(line - image * p.out_h);
    h_ = line_ * p.stride_h + tap / p.kernel_w * p.dilation_h - p.pad_h;
    w_ = column_ * p.stride_w + tap % p.kernel_w * p.dilation_w - p.pad_w;
    place_ = ((image * p.in_h + h_) * p.in_w + w_) * p.channels + column - tap * p.channels;
    const int of_line = p.stride_h * p.in_w, of_column = p.stride_w;
    next_ = kRightPass * of_column * p.channels;
    next_line_ = (of_line - p.out_w * of_column) * p.channels;
    next_image_ = std::int64_t{p.in_h * p.in_w - p.out_h * of_line} * p.channels;
  }

  __device__ void start(unsigned char* left) {
#pragma unroll
    for (int i = 0; i < kPanelTerms / kLeftPass; ++i) {
      unsigned char* const to = left + left_place_ + i * kLeftPass * 128;
      if (i * kLeftPass < left_pixels_) {
        copy_later<16>(to, left_ + static_cast<std::int64_t>(i * kLeftPass) * p_.rows);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
      }
    }
    left_ += static_cast<std::int64_t>(kPanelTerms) * p_.rows;
    left_pixels_ -= kPanelTerms;
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const bool inside = i * kRightPass < right_pixels_ &&
                          static_cast<unsigned>(h_) < static_cast<unsigned>(p_.in_h) &&
                          static_cast<unsigned>(w_) < static_cast<unsigned>(p_.in_w);
      raw_[i] = inside ? right_.load(place_) : right_.none();
      advance();
    }
    right_pixels_ -= kPanelTerms;
  }

  __device__ void finish(unsigned char* right) const {
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      *reinterpret_cast<uint4*>(right + right_place_ + i * kRightPass * 128) =
          right_.values(raw_[i]);
    }
  }

 private:
  __device__ void advance() {
    column_ += kRightPass;
    w_ += kRightPass * p_.stride_w;
    place_ += next_;
    while (column_ >= p_.out_w) {
      column_ -= p_.out_w;
      w_ -= p_.out_w * p_.stride_w;
      h_ += p_.stride_h;
      place_ += next_line_;
      if (++line_ < p_.out_h) continue;
      line_ = 0;
      h_ -= p_.out_h * p_.stride_h;
      place_ += next_image_;
    }
  }

  const PixelProduct& p_;
  const Right& right_;
  const BFloat16* left_;
  int left_pixels_, right_pixels_;  // left of the chunk, from the thread's first one on
  int left_place_, right_place_;
  int column_, line_, w_, h_;  // of the output pixel, and of the input under the tap
  std::int64_t place_;         // of that input
  int next_, next_line_;
  std::int64_t next_image_;
  typename Right::Raw raw_[kRight];
};

// A block has a tile of the sums of one chunk.
template <class Shape, class Right>
__global__ void __launch_bounds__(kTileThreads, 2)
    pixel_product_kernel(PixelProduct p, Right right) {
  const auto tiles = static_cast<unsigned>(p.row_tiles * p.column_tiles);
  const unsigned chunk = blockIdx.x / tiles, at = blockIdx.x - chunk * tiles;
  const int first_row = static_cast<int>(at) / p.column_tiles * Shape::kTileRows;
  const int first_column = static_cast<int>(at) % p.column_tiles * Shape::kTileColumns;
  auto* const shared = shared_memory<unsigned char>();
  ProductTile<Shape> tile;
  PixelLoads<Shape, Right> loads(p, right, chunk, first_row, first_column);
  const std::int64_t first = chunk * p.chunk;
  const std::int64_t terms = p.pixels - first < p.chunk ? p.pixels - first : p.chunk;
  const auto slot_at = [shared](int slot) { return shared + slot * Shape::kStageBytes; };
  for_each_stage<ProductTile<Shape>, /*kAddsFirst=*/false>(
      static_cast<int>((terms + kPanelTerms - 1) / kPanelTerms),
      [&](int slot) { loads.start(slot_at(slot)); },
      [&](int slot) { loads.finish(slot_at(slot) + Shape::kTileRows * 128); },
      [&](int slot) { tile.add_panels(slot_at(slot)); });
  float* const sums = p.sums + std::int64_t{chunk} * p.rows * p.columns;
  tile.for_each_pair([&](int row, int column, float a, float b) {
    if (first_row + row >= p.rows || first_column + column >= p.columns) return;
    store(Neighbours<float, 2>{{a, b}},
          sums + std::int64_t{first_row + row} * p.columns + first_column + column);
  });
}

// Cuts a product into tiles and chunks.
class PixelTiling {
 public:
  PixelTiling(int tile_rows, int tile_columns, std::int64_t at_once, const PixelProduct& p)
      : row_tiles_((p.rows + tile_rows - 1) / tile_rows),
        column_tiles_((p.columns + tile_columns - 1) / tile_columns) {
    // What adding one of a chunk's sums costs, in values that a tile reads.
    constexpr double kValuesOfSum = 8;
    const std::int64_t tiles = std::int64_t{row_tiles_} * column_tiles_;
    const std::int64_t stages =
        std::max<std::int64_t>(1, (p.pixels + kPanelTerms - 1) / kPanelTerms);
    const std::int64_t most = std::min(stages, 8 * at_once / tiles + 1);
    for (std::int64_t chunks = 1; chunks <= most; ++chunks) {
      const std::int64_t of_chunk = (stages + chunks - 1) / chunks;
      const std::int64_t used = (stages + of_chunk - 1) / of_chunk;
      const std::int64_t waves = (tiles * used + at_once - 1) / at_once;
      const double cost =
          static_cast<double>(waves * at_once * (tile_rows + tile_columns) * of_chunk) *
              kPanelTerms +
          static_cast<double>(used * p.rows) * p.columns * kValuesOfSum;
      if (cost >= cost_) continue;
      cost_ = cost;
      chunks_ = used;
      chunk_ = of_chunk * kPanelTerms;
    }
  }

  double cost() const { return cost_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t blocks() const { return chunks_ * row_tiles_ * column_tiles_; }
  void apply(PixelProduct& p) const {
    p.row_tiles = row_tiles_;
    p.column_tiles = column_tiles_;
    p.chunk = chunk_;
  }

 private:
  int row_tiles_, column_tiles_;
  double cost_ = std::numeric_limits<double>::infinity();
  std::int64_t chunks_ = 1, chunk_ = kPanelTerms;
};

}  // namespace steelyard::kernels::cuda
