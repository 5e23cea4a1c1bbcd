// Exact products of codes on tensor cores that multiply integers of 8 bits and add in int32: codes
// are multiplied as they are, the zero point being subtracted from the sums, which wrap around as
// int32 does.
#pragma once

#include "steelyard/kernels/conv/pixel_groups.h"
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
  const std::int64_t row = k.runs.row();
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
  return fits_windows(k.shape) && k.shape.in_channels > 0 && has_tensor_cores();
}

// The operands of such a product.
template <typename Code>
class CodeWindows {
 public:
  CodeWindows(const CudaQueue& queue, const IntegerConv2d<Code>& k)
      : queue_(queue),
        k_(k),
        runs_(k.shape, pixel_groups(k.shape)),
        pixels_(queue, k.shape, runs_.groups, k.x, k.zero_point),
        ordered_(is_filled() ? OrderedWeights{} : k.ordered),
        packed_(queue, is_packed() ? k.shape.out_channels * runs_.row() : 0),
        sums_(queue, ordered_.sums == nullptr ? k.shape.out_channels : 0) {
    if (ordered_.sums != nullptr) return;
    const std::int64_t terms = runs_.channels * runs_.kernel_h * runs_.kernel_w;
    std::int8_t* const packed = is_packed() ? packed_.data() : nullptr;
    const std::int64_t kept = packed != nullptr && terms <= kKeptCodes ? (terms + 3) / 4 * 4 : 0;
    launch(pack_codes_kernel,
           {k.shape.out_channels, kThreads,
            kThreads * sizeof(std::int32_t) + static_cast<std::size_t>(kept)},
           stream_of(queue), PackedCodes{runs_, k.w, packed, sums_.data()});
    ordered_ = {packed, sums_.data()};
  }

  ZeroPointSums zero() const { return {k_.zero_point, ordered_.sums}; }

  template <class Epilogue>
  void multiply(const Epilogue& epilogue) const {
    const Conv2dShape& s = k_.shape;
    const PixelGroups& groups = runs_.groups;
    const WindowProduct product{.x = pixels_.data(),
                                .w = weights(),
                                .images = s.batch,
                                .in_h = static_cast<int>(s.in_h),
                                .in_w = static_cast<int>(groups.line),
                                .pixel_bytes = groups.codes,
                                .kernel_w = static_cast<int>(groups.kernel_w),
                                .taps = static_cast<int>(s.kernel_h * groups.kernel_w),
                                .outputs = static_cast<int>(s.out_channels),
                                .out_h = static_cast<int>(s.out_h()),
                                .out_w = static_cast<int>(s.out_w()),
                                .zero_point = k_.zero_point};
    WindowAxes axes = forward_axes(s);
    axes.columns[0] =
        forward_axis(s.out_w(), groups.kernel_w, groups.stride_w, groups.pad_w, groups.dilation_w);
    multiply_windows<Code>(queue_, product, axes, epilogue);
  }

 private:
  // Whether something fills pixels up.
  bool is_filled() const { return runs_.groups.codes != k_.shape.in_channels; }
  // Weights of one tap have the order of reading where nothing does.
  bool is_packed() const {
    return ordered_.sums == nullptr && (is_filled() || runs_.kernel_h * runs_.kernel_w > 1);
  }
  const std::int8_t* weights() const { return ordered_.codes == nullptr ? k_.w : ordered_.codes; }

  const CudaQueue& queue_;
  const IntegerConv2d<Code>& k_;
  TermRuns runs_;
  GroupedPixels<Code> pixels_;
  OrderedWeights ordered_;
  Scratch<std::int8_t> packed_;
  Scratch<std::int32_t> sums_;
};

}  // namespace steelyard::kernels::cuda
