#include "steelyard/kernels/conv/outer_products.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/conv/float_source.h"
#include "steelyard/kernels/conv/outer_sums.h"
#include "steelyard/kernels/cpu/bf16.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/rounded_operands.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::outer_products {
namespace {

// About how many operands a block has, which stay in the second-level cache.
constexpr std::int64_t kBlockOperands = 48 * 1024;
// Operands of a tile, so that its sums are not loaded and stored too often.
constexpr std::int64_t kLeastSteps = 256;
// Floats of all partial sums together; beyond, threads share the tiles and not the pixels.
constexpr std::int64_t kMostPartialSums = std::int64_t{1} << 22;

// The upper halves of two floats as an operand.
inline std::uint32_t pair_of(float first, float second) {
  return (bits_as<std::uint32_t>(first) >> 16) | (bits_as<std::uint32_t>(second) & 0xFFFF0000U);
}

// Where a convolution's operands and sums are. Lines of output pixels are numbered through all
// images.
template <class O>
struct Layout {
  Layout(const Conv2dShape& shape, bool rounds_operands)
      : s(shape),
        rounds(rounds_operands),
        line((s.in_w + 2 * s.pad_w) * s.in_channels),
        rows(s.kernel_h * s.kernel_w * s.in_channels_per_group()),
        vectors(s.out_channels_per_group() <= O::kLanes ? 1 : 2),
        tile_rows(vectors == 1 ? kTileRows<O, 1> : kTileRows<O, 2>),
        row_tiles((rows + tile_rows - 1) / tile_rows),
        columns(vectors * O::kLanes),
        column_tiles((s.out_channels_per_group() + columns - 1) / columns),
        steps((s.out_w() + O::kPixels - 1) / O::kPixels),
        packs_gradient(O::kPixels > 1 || rounds || s.out_channels_per_group() % columns != 0) {
    for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
        for (std::int64_t c = 0; c < s.in_channels_per_group(); ++c) {
          offsets.push_back(kh * s.dilation_h * line + kw * s.dilation_w * s.in_channels + c);
        }
      }
    }
    offsets.resize(static_cast<std::size_t>(row_tiles * tile_rows), offsets.back());
  }

  std::int64_t lines() const { return s.batch * s.out_h(); }
  std::int64_t tiles() const { return s.groups * column_tiles * row_tiles; }
  std::int64_t tile_size() const { return tile_rows * columns; }
  // Input rows, border included, that some lines of an image read.
  std::int64_t input_rows(std::int64_t count) const {
    return (count - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1;
  }
  std::int64_t lines_of_block() const {
    const std::int64_t of_line = s.stride_h * line + s.groups * column_tiles * steps * columns;
    const std::int64_t wanted = std::max(kBlockOperands / of_line, kLeastSteps / steps);
    return std::clamp<std::int64_t>(wanted, 1, lines());
  }

  Conv2dShape s;
  bool rounds;  // operands to bf16
  std::int64_t line, rows, vectors, tile_rows, row_tiles, columns, column_tiles, steps;
  bool packs_gradient;
  std::vector<std::int64_t> offsets;  // of the rows, in x: kernel row, kernel column, channel
};

// The operands of some lines.
template <class O>
class Block {
 public:
  using Operand = typename O::Operand;

  explicit Block(const Layout<O>& layout) : layout_(layout) {}

  template <class Source, typename Gradient>
  void pack(const Source& x, const Gradient* grad, std::int64_t first, std::int64_t last) {
    begins_.clear();
    std::int64_t rows = 0;
    for_each_image(first, last, [&](std::int64_t, std::int64_t, std::int64_t count) {
      rows += layout_.input_rows(count);
    });
    x_ = line_buffer<Operand, 0>(rows * layout_.line);
    std::int64_t start = 0;
    for_each_image(first, last, [&](std::int64_t image, std::int64_t row, std::int64_t count) {
      pack_rows(x, image, row * layout_.s.stride_h - layout_.s.pad_h, count, start);
      start += layout_.input_rows(count) * layout_.line;
    });
    if constexpr (std::is_same_v<Operand, Gradient>) {
      if (!layout_.packs_gradient) {
        given_ = grad + first * layout_.s.out_w() * layout_.s.out_channels;
        return;
      }
    }
    pack_gradient(grad, first, last - first);
  }

  const Operand* x() const { return x_; }
  // The gradient's operands for a tile of columns.
  const Operand* grad(std::int64_t tile) const {
    if constexpr (O::kPixels == 1) {
      if (!layout_.packs_gradient) return given_ + tile * layout_.columns;
    }
    return grad_ + tile * std::ssize(begins_) * layout_.steps * layout_.columns;
  }
  OuterLines lines() const {
    return {begins_, layout_.steps, layout_.s.stride_w * layout_.s.in_channels * O::kPixels,
            layout_.packs_gradient ? layout_.columns : layout_.s.out_channels};
  }

 private:
  // visit(image, first row, number of rows) for the images that some lines belong to.
  template <class Visit>
  void for_each_image(std::int64_t first, std::int64_t last, const Visit& visit) const {
    const std::int64_t out_h = layout_.s.out_h();
    while (first < last) {
      const std::int64_t row = first % out_h, count = std::min(last - first, out_h - row);
      visit(first / out_h, row, count);
      first += count;
    }
  }

  template <class Source>
  void pack_rows(const Source& x, std::int64_t image, std::int64_t top, std::int64_t count,
                 std::int64_t start) {
    const Conv2dShape& s = layout_.s;
    const std::int64_t rows = layout_.input_rows(count);
    for (std::int64_t i = 0; i < count; ++i) {
      begins_.push_back(start + i * s.stride_h * layout_.line);
    }
    const std::int64_t inner = s.in_w * s.in_channels, border = s.pad_w * s.in_channels;
    // A line and, for the pixels that its last ones are paired with, zeros.
    const std::int64_t beyond = s.stride_w * s.in_channels;
    float* const values = line_buffer<float, 2>(layout_.line + beyond);
    std::fill_n(values, layout_.line + beyond, 0.0F);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t h = top + row, from = (image * s.in_h + h) * inner;
      Operand* const to = x_ + start + row * layout_.line;
      if (h < 0 || h >= s.in_h) {
        std::fill_n(to, layout_.line, Operand{0});
      } else if constexpr (O::kPixels == 1) {
        std::fill_n(to, border, Operand{0});
        x.read(from, inner, to + border);
        std::fill_n(to + border + inner, border, Operand{0});
      } else {
        x.read(from, inner, values + border);
        const float* const first = values;
        const float* const second = first + beyond;
        STEELYARD_VECTORIZE
        for (std::int64_t i = 0; i < layout_.line; ++i) to[i] = pair_of(first[i], second[i]);
      }
    }
  }

  // [groups, tiles of columns, lines, steps, columns]; read pixel by pixel, as it lies in memory.
  template <typename Gradient>
  void pack_gradient(const Gradient* grad, std::int64_t first, std::int64_t lines) {
    const Conv2dShape& s = layout_.s;
    const std::int64_t outputs = s.out_channels_per_group(), out_w = s.out_w();
    const std::int64_t columns = layout_.columns, tiles = s.groups * layout_.column_tiles;
    const std::int64_t of_tile = lines * layout_.steps * columns;
    grad_ = line_buffer<Operand, 1>(tiles * of_tile);
    for (std::int64_t step = 0; step < lines * layout_.steps; ++step) {
      const std::int64_t line = step / layout_.steps, i = step % layout_.steps * O::kPixels;
      const Gradient* const pixel = grad + ((first + line) * out_w + i) * s.out_channels;
      Operand* to = grad_ + step * columns;
      for (std::int64_t tile = 0; tile < tiles; ++tile, to += of_tile) {
        const std::int64_t column = tile % layout_.column_tiles * columns;
        const std::int64_t used = std::min(columns, outputs - column);
        pack_step(pixel + tile / layout_.column_tiles * outputs + column, used, i + 1 < out_w, to);
        if (used < columns) std::fill(to + used, to + columns, Operand{0});
      }
    }
  }

  template <typename Gradient>
  void pack_step(const Gradient* pixel, std::int64_t used, bool has_second, Operand* to) const {
    if constexpr (std::is_same_v<Gradient, Operand>) {
      Floats{pixel, layout_.rounds}.read(0, used, to);
    } else if constexpr (O::kPixels == 1) {
      for (std::int64_t c = 0; c < used; ++c) to[c] = widen(pixel[c]);
    } else {
      bf16_pairs(used, pixel, has_second ? pixel + layout_.s.out_channels : nullptr, to);
    }
  }

  const Layout<O>& layout_;
  std::vector<std::int64_t> begins_;
  Operand *x_ = nullptr, *grad_ = nullptr;
  const float* given_ = nullptr;  // the gradient of the first line, if it is not packed
};

// Whether the rows of a tile are neighbours in x. All are looked at: where they jump, the first and
// the last may lie as far apart as neighbours do.
template <std::int64_t kRows>
bool are_neighbours(const std::int64_t* offsets) {
  for (std::int64_t row = 1; row < kRows; ++row) {
    if (offsets[row] != offsets[0] + row) return false;
  }
  return true;
}

// Adds a block's products to tiles [first, last) of the sums [groups, tiles of columns, tiles of
// rows, rows, columns].
template <class O, std::int64_t kVectors>
void add_block(const Layout<O>& layout, const Block<O>& block, std::int64_t first,
               std::int64_t last, float* sums) {
  constexpr std::int64_t kRows = kTileRows<O, kVectors>;
  const OuterLines lines = block.lines();
  for (std::int64_t tile = first; tile < last; ++tile) {
    const std::int64_t of_columns = tile / layout.row_tiles;
    const std::int64_t* const offsets = layout.offsets.data() + tile % layout.row_tiles * kRows;
    const std::int64_t group = of_columns / layout.column_tiles;
    const auto* const x = block.x() + group * layout.s.in_channels_per_group();
    float* const to = sums + tile * layout.tile_size();
    if (are_neighbours<kRows>(offsets)) {
      add_outer_products<O, kVectors, true>(x, lines, offsets, block.grad(of_columns), to);
    } else {
      add_outer_products<O, kVectors, false>(x, lines, offsets, block.grad(of_columns), to);
    }
  }
}

// What a product is of, besides x.
template <typename Gradient>
struct Operands {
  Conv2dShape shape;
  const Gradient* grad_y;
  float scale;               // of the values of x
  const std::uint8_t* mask;  // of the weights whose gradient passes; may be null
  float* grad_w;
};

// grad_w [O, C/groups, KH, KW] = scale * the sum of `parts` arrays of sums, in their order.
template <class O, class K>
void unpack(const Layout<O>& layout, std::int64_t parts, const float* sums, const K& k) {
  const Conv2dShape& s = layout.s;
  const std::int64_t outputs = s.out_channels_per_group(), channels = s.in_channels_per_group();
  const std::int64_t taps = s.kernel_h * s.kernel_w, size = layout.tiles() * layout.tile_size();
  parallel_for(s.out_channels, 16384 / layout.rows + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      const std::int64_t column = o % outputs;
      const std::int64_t tile =
          (o / outputs * layout.column_tiles + column / layout.columns) * layout.row_tiles;
      const float* const of_output = sums + tile * layout.tile_size() + column % layout.columns;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const float* at = of_output + (tap * channels + c) * layout.columns;
          float sum = *at;
          for (std::int64_t part = 1; part < parts; ++part) sum += *(at += size);
          const std::int64_t i = (o * channels + c) * taps + tap;
          const bool passes = k.mask == nullptr || (k.mask[i / 8] >> (i % 8) & 1) != 0;
          k.grad_w[i] = pass_inside(passes, sum * k.scale);
        }
      }
    }
  });
}

template <class O, class Source, typename Gradient>
void multiply_by(const Source& x, const Operands<Gradient>& k, bool rounds) {
  const Layout<O> layout(k.shape, rounds);
  const std::int64_t size = layout.tiles() * layout.tile_size(), threads = omp_get_max_threads();
  const std::int64_t of_block = layout.lines_of_block();
  const std::int64_t blocks = (layout.lines() + of_block - 1) / of_block;
  const std::int64_t parts =
      std::clamp<std::int64_t>(kMostPartialSums / size, 1, std::min(blocks, threads));
  const std::int64_t shares = std::min(layout.tiles(), (threads + parts - 1) / parts);
  float* const sums = line_buffer<float, 3>(parts * size);
  parallel_for(parts * shares, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t part = i / shares, share = i % shares;
      const std::int64_t first = share * layout.tiles() / shares;
      const std::int64_t last = (share + 1) * layout.tiles() / shares;
      float* const own = sums + part * size;
      std::fill(own + first * layout.tile_size(), own + last * layout.tile_size(), 0.0F);
      Block<O> block(layout);
      const std::int64_t until = (part + 1) * layout.lines() / parts;
      for (std::int64_t line = part * layout.lines() / parts; line < until; line += of_block) {
        block.pack(x, k.grad_y, line, std::min(line + of_block, until));
        if (layout.vectors == 1) {
          add_block<O, 1>(layout, block, first, last, own);
        } else {
          add_block<O, 2>(layout, block, first, last, own);
        }
      }
    }
  });
  unpack(layout, parts, sums, k);
}

template <class Source, typename Gradient>
void multiply(const Source& x, const Operands<Gradient>& k, const CpuProducts& products) {
  const bool rounds = products.precision == MatmulPrecision::kBf16;
#if defined(__AVX512BW__)
  if (rounds && has_bf16(products)) return multiply_by<Bf16Operands>(x, k, rounds);
#endif
  multiply_by<FloatOperands>(x, k, rounds);
}

}  // namespace

void compute(const Conv2dBackwardWeight<float>& k) {
  const bool rounds = k.products.precision == MatmulPrecision::kBf16;
  multiply(Floats{k.x, rounds}, Operands<float>{k.shape, k.grad_y, 1.0F, nullptr, k.grad_w},
           k.products);
}
template <typename Code, typename Gradient>
void compute(const CodesBackwardWeight<Code, Gradient>& k) {
  multiply(Codes<Code>{k.x, *k.zero_point},
           Operands<Gradient>{k.shape, k.grad_y, *k.scale, k.mask, k.grad_w}, k.products);
}

template void compute(const CodesBackwardWeight<std::int8_t>&);
template void compute(const CodesBackwardWeight<std::uint8_t>&);
template void compute(const CodesBackwardWeight<std::int8_t, BFloat16>&);
template void compute(const CodesBackwardWeight<std::uint8_t, BFloat16>&);

}  // namespace steelyard::kernels::outer_products
