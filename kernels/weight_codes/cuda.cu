// A block has a few rows of weights: it finds their scales, then their codes.
#include <algorithm>
#include <bit>
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

// A block's memory: the scale and zero point of each row, the sum of the magnitudes of its
// operands, and what reductions need.
struct BlockMemory {
  float* scales;
  std::int32_t* zero_points;
  unsigned* sums;
  void* reduction;

  static constexpr std::size_t kBytes =
      kMostRows * (sizeof(float) + sizeof(std::int32_t) + sizeof(unsigned)) +
      kThreads * sizeof(FiniteExtremes);
};

__device__ BlockMemory block_memory() {
  float* scales = cuda::shared_memory<float>();
  auto* zero_points = reinterpret_cast<std::int32_t*>(scales + kMostRows);
  auto* sums = reinterpret_cast<unsigned*>(zero_points + kMostRows);
  return {scales, zero_points, sums, sums + kMostRows};
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

__global__ void __launch_bounds__(kThreads)
    quantize_weights_kernel(QuantizeWeights given, int rows, LargestSum largest_sum) {
  const WeightQuantization& op = given.op;
  const WeightCodeArrays& to = given.to;
  const bool adds_up = largest_sum.adds_up;
  const BlockMemory memory = block_memory();
  const int lanes = kThreads / rows;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int mine = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows;
  const std::int64_t row = first + mine;
  FiniteExtremes seen;
  if (op.source == ScaleSource::kExtremes) {
    if (row < op.rows) {
      const float* values = given.weight + row * op.row_size;
      for (std::int64_t i = lane; i < op.row_size; i += lanes) seen.take(values[i]);
    }
    seen = cuda::join_lanes(lanes, seen, static_cast<FiniteExtremes*>(memory.reduction),
                            cuda::JoinExtremes());
  }
  const float bias = largest_bias(op, given.bias, row, memory.reduction);
  const bool leads = lane == 0 && row < op.rows;
  float scale = 0;
  if (leads) {
    const bool keeps = op.scales > 1 || row == 0;
    const FiniteExtremes step = seen.observed(op.row_size);
    const auto grid = follow_row(given, row, keeps, step, bias, largest_sum.of_any(given));
    scale = memory.scales[mine] = grid.scale;
    memory.zero_points[mine] = grid.zero_point;
    const std::int64_t c = op.scales == 1 ? 0 : row;
    if (keeps) to.pass_scale[c] = scale;
    if (keeps && to.pass_zero_point != nullptr) to.pass_zero_point[c] = grid.zero_point;
  }
  if (threadIdx.x < kMostRows) memory.sums[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t end = (first + rows < op.rows ? first + rows : op.rows) * op.row_size;
  std::int64_t nan = 0;
  for (std::int64_t i = first * op.row_size + threadIdx.x * kEight; i < end;
       i += kThreads * kEight) {
    const int size = end - i < kEight ? static_cast<int>(end - i) : kEight;
    alignas(16) float x[kEight];
    alignas(16) std::int8_t codes[kEight];
    cuda::load_span(given.weight + i, size, x);
    std::int64_t of = divide(i, op.row_size);
    std::int64_t left = (of + 1) * op.row_size - i;  // of this row
    unsigned inside = 0;
    unsigned sum = 0;
    for (int k = 0; k < size; ++k) {
      if (left == 0) {
        if (adds_up) atomicAdd(memory.sums + (of - first), sum);
        sum = 0;
        ++of;
        left = op.row_size;
      }
      --left;
      const std::int32_t zero_point = memory.zero_points[of - first];
      const Affine<float> grid = make_affine(op.rule.codes, memory.scales[of - first], zero_point);
      const float code = unclamped_code(x[k], grid);
      const std::int32_t integer = to_integer_code(code, grid);
      codes[k] = static_cast<std::int8_t>(integer);
      const std::int32_t operand = integer - zero_point;
      sum += static_cast<unsigned>(operand < 0 ? -operand : operand);
      inside |= (code_is_inside(code, grid) ? 1U : 0U) << k;
      nan += x[k] != x[k] ? 1 : 0;
    }
    if (adds_up) atomicAdd(memory.sums + (of - first), sum);
    cuda::store_span(codes, size, to.codes + i);
    if (to.mask != nullptr) to.mask[i / kEight] = static_cast<std::uint8_t>(inside);
  }
  if (op.source != ScaleSource::kExtremes && !op.counted) {
    count(nan, given.quantizer.non_finite);
  }
  if (adds_up) __syncthreads();
  if (!leads || given.bias.x_scale == nullptr) return;
  quantize_bias_of_row(given, row, scale, largest_sum.of(given, memory.sums[mine]));
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
