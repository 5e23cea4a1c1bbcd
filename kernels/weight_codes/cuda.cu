// A block has a few rows of weights: it finds their scales, then their codes.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/cuda/range_update.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/weight_codes/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::divide;
using cuda::kEight;
using cuda::kThreads;

constexpr int kMostRows = 8;

// Rows of a block, a power of two. Together they have a multiple of 8 weights, so that no two
// blocks share a byte of mask; a block takes many short rows, so that each thread of a warp has at
// least 8 weights if there are enough.
int rows_of_block(std::int64_t row_size) {
  const std::int64_t threads = std::clamp<std::int64_t>(row_size / kEight, 1, kThreads);
  const auto lanes = std::max<std::int64_t>(
      32, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(threads))));
  return static_cast<int>(
      std::max(kThreads / lanes, kEight / std::gcd<std::int64_t>(kEight, row_size)));
}

// A block's memory: the scale and zero point of each row, the sums of the magnitudes of its
// operands and of its codes, and what reductions need.
struct BlockMemory {
  float* scales;
  std::int32_t* zero_points;
  unsigned *magnitudes, *sums;
  void* reduction;

  static constexpr std::size_t kBytes =
      kMostRows * (sizeof(float) + sizeof(std::int32_t) + 2 * sizeof(unsigned)) +
      kThreads * sizeof(FiniteExtremes);
};

__device__ BlockMemory block_memory() {
  float* scales = cuda::shared_memory<float>();
  auto* zero_points = reinterpret_cast<std::int32_t*>(scales + kMostRows);
  auto* magnitudes = reinterpret_cast<unsigned*>(zero_points + kMostRows);
  unsigned* sums = magnitudes + kMostRows;
  return {scales, zero_points, magnitudes, sums, sums + kMostRows};
}

// The largest bias of the rows that share the row's scale; threads of the block call together.
__device__ float largest_bias(const WeightQuantization& op, const BiasOfRows& bias,
                              std::int64_t row, void* reduction) {
  if (op.fit == BiasFit::kNothing || bias.deployed == nullptr) return 0;
  if (op.scales == op.rows) return row < op.rows ? larger_magnitude(0, bias.deployed[row]) : 0;
  float largest = 0;
  for (std::int64_t o = threadIdx.x; o < op.rows; o += kThreads) {
    largest = larger_magnitude(largest, bias.deployed[o]);
  }
  return static_cast<float>(
      cuda::block_reduce(largest, static_cast<double*>(reduction), cuda::Larger()));
}

// A block's first row, and the row of a thread, which shares it with `lanes` threads.
struct Place {
  int lanes, lane, mine;
  std::int64_t first, row;
};

__device__ Place place_of(int rows) {
  const int lanes = kThreads / rows;
  const int mine = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows;
  return {lanes, static_cast<int>(threadIdx.x) & (lanes - 1), mine, first, first + mine};
}

// The extremes of the thread's row; threads of the block call together.
__device__ FiniteExtremes extremes_of_row(const QuantizeWeights& given, const Place& at,
                                          void* reduction) {
  const WeightQuantization& op = given.op;
  FiniteExtremes seen;
  if (op.source != ScaleSource::kExtremes) return seen;
  if (at.row < op.rows) {
    const float* values = given.weight + at.row * op.row_size;
    for (std::int64_t i = at.lane; i < op.row_size; i += at.lanes) seen.take(values[i]);
  }
  return cuda::join_lanes(at.lanes, seen, static_cast<FiniteExtremes*>(reduction),
                          cuda::JoinExtremes());
}

// The scale and zero point of a row, by one of its threads.
__device__ void choose_scale(const QuantizeWeights& given, const Place& at,
                             const FiniteExtremes& seen, float bias, const LargestSum& largest_sum,
                             const BlockMemory& memory) {
  const WeightCodeArrays& to = given.to;
  const bool keeps = given.op.scales > 1 || at.row == 0;
  const FiniteExtremes step = seen.observed(given.op.row_size);
  const auto grid = follow_row(given, at.row, keeps, step, bias, largest_sum.of_any(given));
  memory.scales[at.mine] = grid.scale;
  memory.zero_points[at.mine] = grid.zero_point;
  const std::int64_t c = given.op.scales == 1 ? 0 : at.row;
  if (keeps) to.pass_scale[c] = grid.scale;
  if (keeps && to.pass_zero_point != nullptr) to.pass_zero_point[c] = grid.zero_point;
}

// The codes of up to eight weights from number i on; returns how many are NaN, in evaluation how
// many are not finite.
__device__ int write_codes(const QuantizeWeights& given, std::int64_t i, int size,
                           std::int64_t first, bool adds_up, const BlockMemory& memory) {
  const WeightQuantization& op = given.op;
  const WeightCodeArrays& to = given.to;
  alignas(16) float x[kEight];
  alignas(16) std::int8_t codes[kEight];
  cuda::load_span(given.weight + i, size, x);
  std::int64_t of = divide(i, op.row_size);
  std::int64_t left = (of + 1) * op.row_size - i;  // of this row
  unsigned inside = 0;
  unsigned sum = 0;
  int faults = 0;
  const float most = op.evaluates ? FLT_MAX : INFINITY;
  for (int k = 0; k < size; ++k) {
    if (left == 0) {
      if (adds_up) atomicAdd(memory.magnitudes + (of - first), sum);
      sum = 0;
      ++of;
      left = op.row_size;
    }
    --left;
    const std::int32_t zero_point = memory.zero_points[of - first];
    const CodeGrid<float> grid =
        make_code_grid(op.rule.codes, memory.scales[of - first], zero_point);
    const float code = unclamped_code(x[k], grid);
    const std::int32_t integer = to_integer_code(code, grid);
    codes[k] = static_cast<std::int8_t>(integer);
    const std::int32_t operand = integer - zero_point;
    sum += static_cast<unsigned>(operand < 0 ? -operand : operand);
    inside |= (code_is_inside(code, grid) ? 1U : 0U) << k;
    faults += fabsf(x[k]) <= most ? 0 : 1;
  }
  if (adds_up) atomicAdd(memory.magnitudes + (of - first), sum);
  cuda::store_span(codes, size, to.codes + i);
  if (to.mask != nullptr) to.mask[i / kEight] = static_cast<std::uint8_t>(inside);
  return faults;
}

// The codes of a block's rows, which end at `end`, in the order of reading, and their sums; threads
// of the block call together.
__device__ void order_rows(const QuantizeWeights& given, const Place& at, std::int64_t end,
                           bool leads, const BlockMemory& memory) {
  const WeightCodeArrays& to = given.to;
  const std::int64_t size = given.op.row_size, taps = given.op.taps, channels = size / taps;
  __syncthreads();  // all codes are written
  std::int64_t row = at.first;
  unsigned sum = 0;
  for (std::int64_t i = at.first * size + threadIdx.x; i < end; i += kThreads) {
    const std::int64_t of = divide(i, size);
    if (of != row) {
      atomicAdd(memory.sums + (row - at.first), sum);
      row = of;
      sum = 0;
    }
    const std::int64_t place = i - of * size, tap = divide(place, channels);
    const std::int8_t code = to.codes[of * size + (place - tap * channels) * taps + tap];
    sum += static_cast<unsigned>(code);
    if (to.ordered != nullptr) to.ordered[i] = code;
  }
  atomicAdd(memory.sums + (row - at.first), sum);
  __syncthreads();
  if (leads) to.sums[at.row] = static_cast<std::int32_t>(memory.sums[at.mine]);
}

__global__ void __launch_bounds__(kThreads)
    quantize_weights_kernel(QuantizeWeights given, int rows, LargestSum largest_sum) {
  const WeightQuantization& op = given.op;
  const bool adds_up = largest_sum.adds_up;
  const BlockMemory memory = block_memory();
  const Place at = place_of(rows);
  const FiniteExtremes seen = extremes_of_row(given, at, memory.reduction);
  const float bias = largest_bias(op, given.bias, at.row, memory.reduction);
  const bool leads = at.lane == 0 && at.row < op.rows;
  if (leads) choose_scale(given, at, seen, bias, largest_sum, memory);
  if (threadIdx.x < kMostRows) memory.magnitudes[threadIdx.x] = memory.sums[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t end = (at.first + rows < op.rows ? at.first + rows : op.rows) * op.row_size;
  std::int64_t faults = 0;
  for (std::int64_t i = at.first * op.row_size + threadIdx.x * kEight; i < end;
       i += kThreads * kEight) {
    const int size = end - i < kEight ? static_cast<int>(end - i) : kEight;
    faults += write_codes(given, i, size, at.first, adds_up, memory);
  }
  if (op.source != ScaleSource::kExtremes && !op.counted) {
    count(faults, given.quantizer.non_finite);
  }
  if (given.to.sums != nullptr) order_rows(given, at, end, leads, memory);
  if (adds_up) __syncthreads();
  if (!leads || given.bias.x_scale == nullptr) return;
  quantize_bias_of_row(given, at.row, memory.scales[at.mine],
                       largest_sum.of(given, memory.magnitudes[at.mine]));
}

}  // namespace

static void compute(const CudaQueue& queue, const QuantizeWeights& k) {
  const WeightQuantization& op = k.op;
  const int rows = rows_of_block(op.row_size);
  cuda::launch(quantize_weights_kernel,
               {.blocks = (op.rows + rows - 1) / rows,
                .threads = kThreads,
                .shared_bytes = BlockMemory::kBytes},
               cuda::stream_of(queue), k, rows, LargestSum(k));
}

template struct CudaKernels<WeightCodesKernels>;

}  // namespace steelyard::kernels
