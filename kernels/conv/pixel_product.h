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

 private:
  // Two codes from byte `first` on. A float of 2^23 and more has a code of 8 bits as its last ones;
  // differences of codes have at most 8 bits, too, which are a bfloat16's.
  template <int first>
  __device__ std::uint32_t pair(std::uint32_t codes) const {
    if constexpr (std::is_signed_v<Code>) codes ^= 0x80808080U;  // from -128 on
    const float zero =
        8388608.0F + static_cast<float>(*zero_point + (std::is_signed_v<Code> ? 128 : 0));
    const float low = __uint_as_float(__byte_perm(codes, 0x4B000000U, 0x7440U | first)) - zero;
    const float high = __uint_as_float(__byte_perm(codes, 0x4B000000U, 0x7440U | (first + 1))) - zero;
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
  // Those of PixelTiling: pixels of a block, a multiple of kPanelTerms.
  std::int64_t chunk = 0;
  int row_tiles = 0, column_tiles = 0;
  float* sums = nullptr;  // [chunks, rows, columns]
};

template <class Tile, class Right>
class PixelLoads {
 public:
  static constexpr int kLeftPieces = Tile::kTileRows / 8, kRightPieces = Tile::kTileColumns / 8;
  static constexpr int kLeftPass = kTileThreads / kLeftPieces;  // pixels at a time
  static constexpr int kRightPass = kTileThreads / kRightPieces;
  static constexpr int kRight = kPanelTerms / kRightPass;  // pieces of a thread

  __device__ PixelLoads(const PixelProduct& p, const Right& right, std::int64_t chunk,
                        int first_row, int first_column)
      : p_(p), right_(right) {
    const auto thread = static_cast<int>(threadIdx.x);
    next_ = chunk * p.chunk;
    end_ = next_ + p.chunk < p.pixels ? next_ + p.chunk : p.pixels;
    row_ = first_row + thread % kLeftPieces * 8;
    const int column = first_column + thread % kRightPieces * 8;
    has_column_ = column < p.columns;
    const int tap = column / p.channels;
    channel_ = column - tap * p.channels;
    tap_h_ = tap / p.kernel_w * p.dilation_h - p.pad_h;
    tap_w_ = tap % p.kernel_w * p.dilation_w - p.pad_w;
    pixel_ = next_ + thread / kRightPieces;
    const std::int64_t line = pixel_ / p.out_w;
    column_ = static_cast<int>(pixel_ - line * p.out_w);
    image_ = line / p.out_h;
    line_ = static_cast<int>(line - image_ * p.out_h);
  }

  __device__ void start(unsigned char* left) {
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPanelTerms / kLeftPass; ++i) {
      const int term = thread / kLeftPieces + i * kLeftPass;
      unsigned char* const to = left + place_in_panels(term, thread % kLeftPieces);
      if (next_ + term < end_ && row_ < p_.rows) {
        copy_later<16>(to, p_.grad + (next_ + term) * p_.rows + row_);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
      }
    }
    next_ += kPanelTerms;
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int h = line_ * p_.stride_h + tap_h_, w = column_ * p_.stride_w + tap_w_;
      const bool inside = has_column_ && pixel_ < end_ &&
                          static_cast<unsigned>(h) < static_cast<unsigned>(p_.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(p_.in_w);
      raw_[i] = inside ? right_.load(((image_ * p_.in_h + h) * p_.in_w + w) * p_.channels + channel_)
                       : right_.none();
      advance();
    }
  }

  __device__ void finish(unsigned char* right) const {
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kRight; ++i) {
      const int term = thread / kRightPieces + i * kRightPass;
      *reinterpret_cast<uint4*>(right + place_in_panels(term, thread % kRightPieces)) =
          right_.values(raw_[i]);
    }
  }

 private:
  __device__ void advance() {
    pixel_ += kRightPass;
    column_ += kRightPass;
    while (column_ >= p_.out_w) {
      column_ -= p_.out_w;
      if (++line_ < p_.out_h) continue;
      line_ = 0;
      ++image_;
    }
  }

  const PixelProduct& p_;
  const Right& right_;
  std::int64_t next_, end_;  // pixels of the stage to come, and of the chunk
  int row_;
  bool has_column_;
  int channel_, tap_h_, tap_w_;
  std::int64_t pixel_, image_;
  int line_, column_;
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
  PixelTiling(int tile_rows, int tile_columns, std::int64_t at_once, double of_sum,
              const PixelProduct& p)
      : row_tiles_((p.rows + tile_rows - 1) / tile_rows),
        column_tiles_((p.columns + tile_columns - 1) / tile_columns) {
    // What adding a chunk's sums costs, in products of a pixel.
    constexpr double kPixelsOfChunk = 500;
    const std::int64_t tiles = std::int64_t{row_tiles_} * column_tiles_;
    const std::int64_t stages = std::max<std::int64_t>(1, (p.pixels + kPanelTerms - 1) / kPanelTerms);
    const std::int64_t most = std::min(stages, 8 * at_once / tiles + 1);
    for (std::int64_t chunks = 1; chunks <= most; ++chunks) {
      const std::int64_t of_chunk = (stages + chunks - 1) / chunks;
      const std::int64_t used = (stages + of_chunk - 1) / of_chunk;
      const std::int64_t waves = (tiles * used + at_once - 1) / at_once;
      const double cost = static_cast<double>(waves * at_once * tile_rows * tile_columns) *
                              static_cast<double>(of_chunk * kPanelTerms) * of_sum +
                          static_cast<double>(used * p.rows) * p.columns * kPixelsOfChunk;
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
