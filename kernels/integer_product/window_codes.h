// Exact products of codes on tensor cores that multiply integers of 8 bits and add in int32: codes
// are multiplied as they are, the zero point being subtracted from the sums, which wrap around as
// int32 does. Codes whose pixels have no multiple of 8 channels are copied to patches first.
#pragma once

#include "steelyard/kernels/conv/code_patches.h"
#include "steelyard/kernels/conv/window_product.h"
#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::kernels::cuda {

// Weights [O, C, taps] in the order of reading, [O, runs.row()], and their sums; what fills runs up
// is 0. `packed` is null where that order is theirs.
struct PackedCodes {
  TermRuns runs;
  const std::int8_t* w;
  std::int8_t* packed;
  std::int32_t* sums;

  // Calls f for each array: the emulated GPU checks them.
  template <typename F>
  void each_used(const F& f) const {
    f(w);
    f(packed);
    f(sums);
  }
};

// The largest row of weights that a block keeps in shared memory.
inline constexpr std::int64_t kKeptCodes = 40 << 10;

// The sum of the four codes of a word.
__device__ inline std::int32_t sum_of_codes(std::uint32_t codes) {
  std::int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int8_t>(codes >> 8 * i & 0xFF);
  return sum;
}

// A block has an output.
static __global__ void __launch_bounds__(kThreads) pack_codes_kernel(PackedCodes k) {
  const std::int64_t terms = k.runs.channels * k.runs.kernel_h * k.runs.kernel_w;
  const std::int8_t* const from = k.w + blockIdx.x * terms;
  auto* const parts = shared_memory<std::int32_t>();
  auto* const kept = reinterpret_cast<std::int8_t*>(parts + kThreads);
  const bool keeps = k.packed != nullptr && terms <= kKeptCodes;
  const std::int64_t words = terms % 4 == 0 && is_aligned(k.w, 4) ? terms / 4 : 0;
  std::int32_t sum = 0;
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) {
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(from)[i];
    sum += sum_of_codes(codes);
    if (keeps) reinterpret_cast<std::uint32_t*>(kept)[i] = codes;
  }
  for (std::int64_t i = 4 * words + threadIdx.x; i < terms; i += kThreads) {
    sum += from[i];
    if (keeps) kept[i] = from[i];
  }
  parts[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) k.sums[blockIdx.x] = parts[0];
  if (k.packed == nullptr) return;
  const std::int64_t row = k.runs.kernel_h * k.runs.run;
  for (std::int64_t i = threadIdx.x; i < row; i += kThreads) {
    const std::int64_t element = k.runs.element(i);
    k.packed[blockIdx.x * row + i] = element < 0 ? std::int8_t{0}
                                     : keeps     ? kept[element]
                                                 : from[element];
  }
}

// What an epilogue adds to the sums of an output.
struct ZeroPointSums {
  const std::int32_t *zero_point, *weight_sums;
  __device__ std::int32_t of(int output) const { return *zero_point * weight_sums[output]; }
};

// acc = the exact sums.
struct StoreExactSums {
  ZeroPointSums zero;
  std::int32_t* acc;

  template <class Tile>
  __device__ void operator()(Tile& tile, unsigned char* shared, const OutputRows& rows,
                             int first_column, int outputs) const {
    subtract_from(tile, first_column, outputs);
    StoreSums<std::int32_t>{acc}(tile, shared, rows, first_column, outputs);
  }

 private:
  template <class Tile>
  __device__ void subtract_from(Tile& tile, int first_column, int outputs) const {
    tile.for_each_column([&](int column, auto&& each) {
      const int output = first_column + column;
      const std::int32_t zeros = output < outputs ? zero.of(output) : 0;
      each([zeros](std::int32_t& sum) { sum -= zeros; });
    });
  }
};

// RequantizeAccumulators of the exact sums, of a multiple of 8 outputs. Codes and mask are gathered
// in shared memory, so that rows of them are written at once.
template <typename Code>
struct RequantizeSums {
  ZeroPointSums zero;
  RequantizeAccumulators<Code> to;

  template <class Tile>
  __device__ void operator()(const Tile& tile, unsigned char* shared, const OutputRows& rows,
                             int first_column, int outputs) const {
    constexpr int kColumns = Tile::kTileColumns, kPitch = kColumns + 16, kBytes = kColumns / 8;
    auto* const codes = reinterpret_cast<Code*>(shared);
    auto* const mask = shared + Tile::kTileRows * kPitch;
    auto* const of_column = reinterpret_cast<OfColumn*>(mask + Tile::kTileRows * kBytes);
    const auto thread = static_cast<int>(threadIdx.x);
    __syncthreads();  // the last stage has been read
    if (thread < kColumns) {
      const int output = first_column + thread;
      if (output < outputs) of_column[thread] = of(output);
    }
    __syncthreads();
    const OutputCodes grid = output_codes(to.op.activation, *to.scale, *to.zero_point, to.range);
    tile.for_each_pair([&](int row, int column, std::int32_t a, std::int32_t b) {
      Neighbours<Code, 2> pair;
      const unsigned passes = code(a, of_column[column], grid, pair.of[0]) |
                              code(b, of_column[column + 1], grid, pair.of[1]) << 1;
      store(pair, codes + row * kPitch + column);
      unsigned byte = passes << (column % 8);  // of four lanes together
      byte |= __shfl_xor_sync(0xFFFFFFFFU, byte, 1);
      byte |= __shfl_xor_sync(0xFFFFFFFFU, byte, 2);
      if (column % 8 == 0) mask[row * kBytes + column / 8] = static_cast<std::uint8_t>(byte);
    });
    __syncthreads();
    for (int i = thread; i < Tile::kTileRows * kBytes; i += kTileThreads) {
      const int row = i / kBytes, eight = i % kBytes;
      const int output = first_column + 8 * eight;
      const std::int64_t at = rows(row);
      if (at < 0 || output >= outputs) continue;
      const std::int64_t first = at * outputs + output;
      *reinterpret_cast<uint2*>(to.codes + first) =
          *reinterpret_cast<const uint2*>(codes + row * kPitch + 8 * eight);
      if (to.mask != nullptr) to.mask[first / 8] = mask[i];
    }
  }

 private:
  struct OfColumn {
    std::int32_t offset;  // the bias less what the zero point adds
    float real_scale, multiplier;
  };

  __device__ OfColumn of(int output) const {
    const float real_scale = to.product_scale[output];
    return {with_bias(-zero.of(output), to.bias, output), real_scale,
            requantize_multiplier(real_scale, *to.scale)};
  }
  // Whether it passes.
  __device__ static unsigned code(std::int32_t sum, const OfColumn& of, const OutputCodes& grid,
                                  Code& code) {
    sum += of.offset;
    const float unclamped = requantized_code(sum, of.multiplier, grid.full.zero_point);
    code = static_cast<Code>(grid.code(unclamped));
    return grid.passes(unclamped, dequantize_sum(sum, of.real_scale)) ? 1U : 0U;
  }
};

// Whether a convolution of codes is computed so.
template <typename Code>
bool are_code_windows(const IntegerConv2d<Code>& k) {
  return fits_windows(k.shape) && k.shape.in_channels > 0 &&
         (k.shape.in_channels % 8 == 0 || has_code_patches(k.shape)) && has_tensor_cores();
}

// The operands of such a product.
template <typename Code>
class CodeWindows {
 public:
  CodeWindows(const CudaQueue& queue, const IntegerConv2d<Code>& k)
      : queue_(queue),
        k_(k),
        has_patches_(needs_patches(k)),
        runs_(has_patches_ ? patch_runs(k.shape) : plain_runs(k.shape)),
        packed_(queue, is_packed() ? k.shape.out_channels * runs_.row() : 0),
        weight_sums_(queue, k.shape.out_channels) {
    const std::int64_t terms = runs_.channels * runs_.kernel_h * runs_.kernel_w;
    const std::int64_t kept = is_packed() && terms <= kKeptCodes ? (terms + 3) / 4 * 4 : 0;
    launch(pack_codes_kernel,
           {k.shape.out_channels, kThreads,
            kThreads * sizeof(std::int32_t) + static_cast<std::size_t>(kept)},
           stream_of(queue),
           PackedCodes{runs_, k.w, is_packed() ? packed_.data() : nullptr, weight_sums_.data()});
  }

  ZeroPointSums zero() const { return {k_.zero_point, weight_sums_.data()}; }

  // Calls epilogue(first pixel, pixels) for what takes the sums of each part of the pixels.
  template <class MakeEpilogue>
  void multiply(const MakeEpilogue& epilogue) const {
    const Conv2dShape& s = k_.shape;
    if (!has_patches_) {
      const WindowProduct product{.x = k_.x,
                                  .w = weights(),
                                  .images = s.batch,
                                  .in_h = static_cast<int>(s.in_h),
                                  .in_w = static_cast<int>(s.in_w),
                                  .pixel_bytes = s.in_channels,
                                  .kernel_w = static_cast<int>(s.kernel_w),
                                  .taps = static_cast<int>(s.kernel_h * s.kernel_w),
                                  .outputs = static_cast<int>(s.out_channels),
                                  .out_h = static_cast<int>(s.out_h()),
                                  .out_w = static_cast<int>(s.out_w()),
                                  .zero_point = k_.zero_point};
      return multiply_windows<Code>(queue_, product, forward_axes(s), epilogue(0));
    }
    for_each_code_patches(queue_, sizes_of(s), k_.x, k_.zero_point,
                          [&](std::int64_t first, std::int64_t pixels, const Code* patches) {
                            const WindowProduct product{.x = patches,
                                                        .w = weights(),
                                                        .images = pixels,
                                                        .in_h = 1,
                                                        .in_w = 1,
                                                        .pixel_bytes = runs_.row(),
                                                        .kernel_w = 1,
                                                        .taps = 1,
                                                        .outputs = static_cast<int>(s.out_channels),
                                                        .out_h = 1,
                                                        .out_w = 1,
                                                        .zero_point = k_.zero_point};
                            const Conv2dShape rows{.batch = pixels, .in_h = 1, .in_w = 1};
                            multiply_windows<Code>(queue_, product, forward_axes(rows),
                                                   epilogue(first));
                          });
  }

 private:
  // Weights of one tap have the order of reading.
  bool is_packed() const { return has_patches_ || runs_.kernel_h * runs_.kernel_w > 1; }
  const std::int8_t* weights() const { return is_packed() ? packed_.data() : k_.w; }
  static bool needs_patches(const IntegerConv2d<Code>& k) { return k.shape.in_channels % 8 != 0; }

  const CudaQueue& queue_;
  const IntegerConv2d<Code>& k_;
  bool has_patches_;
  TermRuns runs_;
  Scratch<std::int8_t> packed_;
  Scratch<std::int32_t> weight_sums_;
};

}  // namespace steelyard::kernels::cuda
