// Average pooling of quantized codes: exact window sums and their requantization.
#pragma once

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/pool.h"

namespace steelyard::kernels {

// sums[N, OH, OW, C] = sum over each window of (x - zero_point); padding counts as real zero.
// Code is int8_t or uint8_t.
template <typename Code>
void integer_window_sums(const Pool2dShape& shape, const Code* x, std::int32_t zero_point,
                         std::int32_t* sums);

// How an average of codes gets the codes of another scale:
// clamp(rint(float(sum) * multiplier) + zero_point).
struct AverageRequantize {
  float multiplier = 1;  // global_average_multiplier or window_average_multiplier
  float scale = 1;
  std::int32_t zero_point = 0;
  CodeRange range;
};

// codes of n sums; mask (may be null) = packed bits of the unclamped code inside the range.
template <typename Code>
void requantize_average(std::int64_t n, const AverageRequantize& op, const std::int32_t* sums,
                        Code* codes, std::uint8_t* mask);

// out = float(sum) * (in_scale / count): what observers see.
void dequantize_average(std::int64_t n, float in_scale, std::int64_t count,
                        const std::int32_t* sums, float* out);

}  // namespace steelyard::kernels
