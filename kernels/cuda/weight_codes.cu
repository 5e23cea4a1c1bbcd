// A block has a few rows of weights: it finds their scales, then their codes.
#include "kernels/weight_codes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/range_update.h"
#include "kernels/quantizer_rules.h"

namespace steelyard::kernels {
namespace {

using cuda::count;
using cuda::divide;
using cuda::FiniteExtremes;
using cuda::kEight;
using cuda::kThreads;

constexpr int kMostRows = 8;

// Rows of a block, a power of two. Together they have a multiple of 8 weights, so that no two
// blocks share a byte of mask; short rows are many, so that a warp has no fewer than 8 weights a
// thread where there are any.
int rows_of_block(std::int64_t row_size) {
  const std::int64_t threads = std::clamp<std::int64_t>(row_size / kEight, 1, kThreads);
  const auto lanes = std::max<std::int64_t>(
      32, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(threads))));
  return static_cast<int>(
      std::max(kThreads / lanes, kEight / std::gcd<std::int64_t>(kEight, row_size)));
}

// The scale of a row in this step, and what the quantizer keeps. One thread of the grid `keeps` for
// every scale.
__device__ float scale_of_row(const WeightQuantization& op, std::int64_t row, bool keeps,
                              const FiniteExtremes& seen, const WeightQuantizer& q,
                              const BiasBehind& behind) {
  const std::int64_t c = op.scales == 1 ? 0 : row;
  float scale = q.scale[c];
  if (op.source == ScaleSource::kExtremes) {
    const FiniteExtremes step = seen.learned(op.row_size);
    std::int64_t* steps = q.steps == nullptr ? nullptr : q.steps + c;
    scale = follow_extremes(op.rule, q.lo[c], q.hi[c], steps, step.lo, step.hi).scale;
    q.zero_range[c] = is_zero_range(q.lo[c], q.hi[c]) ? 1 : 0;
    count(step.skipped, q.non_finite);
  }
  float floor = q.floor == nullptr ? 0 : q.floor[c];
  if (op.fits_bias) {
    const float bias = behind.deployed == nullptr ? 0 : behind.deployed[row];
    const FittedScale fitted =
        fit_weight_scale(scale, q.zero_range[c] != 0, larger_magnitude(0, bias), *behind.x_scale);
    scale = fitted.scale;
    floor = fitted.floor;
    if (q.floor != nullptr) q.floor[c] = floor;
  }
  if (op.source == ScaleSource::kLatent) {
    const bool moves = is_finite(q.latent[c]);
    if (moves) scale = scale_of_latent(q.latent[c], q.initial[c], floor, op.rule.codes);
    if (keeps) count(moves ? 0 : 1, q.non_finite);
  }
  // Other rows may be reading a scale that is given.
  if (keeps && (op.source != ScaleSource::kGiven || op.fits_bias)) q.scale[c] = scale;
  return scale;
}

__device__ void quantize_bias_of_row(std::int64_t row, float scale, const BiasBehind& behind,
                                     const WeightCodeArrays& to, std::int64_t* non_finite) {
  const float product = *behind.x_scale * scale;
  to.product_scale[row] = product;
  if (behind.bias == nullptr) return;
  const bool finite = is_finite(behind.bias[row]);
  to.bias_codes[row] = finite ? quantize_bias(behind.bias[row], product) : 0;
  count(finite ? 0 : 1, non_finite);
}

__global__ void __launch_bounds__(kThreads)
    quantize_weights_kernel(WeightQuantization op, int rows, const float* weight, WeightQuantizer q,
                            BiasBehind behind, WeightCodeArrays to) {
  float* scales = cuda::shared_memory<float>();  // [kMostRows]
  const int lanes = kThreads / rows;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int mine = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows;
  const std::int64_t row = first + mine;
  FiniteExtremes seen;
  if (op.source == ScaleSource::kExtremes) {
    if (row < op.rows) {
      const float* values = weight + row * op.row_size;
      for (std::int64_t i = lane; i < op.row_size; i += lanes) seen.take(values[i]);
    }
    seen = cuda::join_lanes(lanes, seen, reinterpret_cast<FiniteExtremes*>(scales + kMostRows));
  }
  if (lane == 0 && row < op.rows) {
    const bool keeps = op.scales > 1 || row == 0;
    const float scale = scale_of_row(op, row, keeps, seen, q, behind);
    scales[mine] = scale;
    if (keeps) to.step_scale[op.scales == 1 ? 0 : row] = scale;
    if (behind.x_scale != nullptr) quantize_bias_of_row(row, scale, behind, to, q.non_finite);
  }
  __syncthreads();
  const std::int64_t end = (first + rows < op.rows ? first + rows : op.rows) * op.row_size;
  std::int64_t nan = 0;
  for (std::int64_t i = first * op.row_size + threadIdx.x * kEight; i < end;
       i += kThreads * kEight) {
    const int size = end - i < kEight ? static_cast<int>(end - i) : kEight;
    alignas(16) float x[kEight];
    alignas(16) std::int8_t codes[kEight];
    cuda::load_span(weight + i, size, x);
    std::int64_t of = divide(i, op.row_size);
    std::int64_t left = (of + 1) * op.row_size - i;  // of this row
    unsigned inside = 0;
    for (int k = 0; k < size; ++k) {
      if (left == 0) {
        ++of;
        left = op.row_size;
      }
      --left;
      const Affine<float> grid = make_affine(op.rule.codes, scales[of - first], 0);
      const float code = unclamped_code(x[k], grid);
      codes[k] = static_cast<std::int8_t>(to_integer_code(code, grid));
      inside |= (code_is_inside(code, grid) ? 1U : 0U) << k;
      nan += x[k] != x[k] ? 1 : 0;
    }
    cuda::store_span(codes, size, to.codes + i);
    if (to.mask != nullptr) to.mask[i / kEight] = static_cast<std::uint8_t>(inside);
  }
  count(nan, q.non_finite);
}

}  // namespace

void quantize_weights(const CudaQueue& queue, const WeightQuantization& op, const float* weight,
                      const WeightQuantizer& q, const BiasBehind& behind,
                      const WeightCodeArrays& to) {
  WeightQuantization rest = op;
  if (op.fits_bias && op.scales < op.rows) {
    // The one scale depends on every row's bias, and every row needs it.
    fit_weight_scales(queue, op.rows, behind.deployed, behind.x_scale, op.scales, q.zero_range,
                      q.scale, q.floor);
    rest.fits_bias = false;
  }
  const int rows = rows_of_block(op.row_size);
  cuda::launch(quantize_weights_kernel,
               {.blocks = (op.rows + rows - 1) / rows,
                .threads = kThreads,
                .shared_bytes = kMostRows * sizeof(float) + kThreads * sizeof(FiniteExtremes)},
               cuda::stream_of(queue), rest, rows, weight, q, behind, to);
}

}  // namespace steelyard::kernels
