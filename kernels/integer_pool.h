// Average pooling of quantized codes: exact window sums and their requantization.
#pragma once

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/cuda_queue.h"
#include "kernels/pool/pool.h"

namespace steelyard::kernels {

// sums[N, OH, OW, C] = sum over each window of (x - zero_point); padding counts as real zero.
// Code is int8_t or uint8_t.
template <typename Code>
void integer_window_sums(const Pool2dShape& shape, const Code* x, const std::int32_t* zero_point,
                         std::int32_t* sums);

// An average of `count` codes: of all pixels, or of a window (affine.h: their multipliers differ).
struct Average {
  enum class Kind { kGlobal, kWindow };
  Kind kind = Kind::kGlobal;
  std::int64_t count = 1;
};

// codes of n sums of codes of in_scale: clamp(rint(float(sum) * multiplier) + zero_point); mask
// (may be null) = packed bits of the unclamped code inside the range.
template <typename Code>
void requantize_average(std::int64_t n, const Average& average, const std::int32_t* sums,
                        const float* in_scale, const float* scale, const std::int32_t* zero_point,
                        CodeRange range, Code* codes, std::uint8_t* mask);

// out = float(sum) * (in_scale / count): what observers see.
void dequantize_average(std::int64_t n, std::int64_t count, const std::int32_t* sums,
                        const float* in_scale, float* out);

// The same on a GPU.
template <typename Code>
void integer_window_sums(const CudaQueue& queue, const Pool2dShape& shape, const Code* x,
                         const std::int32_t* zero_point, std::int32_t* sums);
template <typename Code>
void requantize_average(const CudaQueue& queue, std::int64_t n, const Average& average,
                        const std::int32_t* sums, const float* in_scale, const float* scale,
                        const std::int32_t* zero_point, CodeRange range, Code* codes,
                        std::uint8_t* mask);
void dequantize_average(const CudaQueue& queue, std::int64_t n, std::int64_t count,
                        const std::int32_t* sums, const float* in_scale, float* out);

}  // namespace steelyard::kernels
