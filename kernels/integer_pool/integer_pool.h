// Average pooling of quantized codes: exact window sums and their requantization.
#pragma once

#include "steelyard/kernels/pool/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// sums[N, OH, OW, C] = sum over each window of (x - zero_point); padding counts as real zero.
// Code is int8_t or uint8_t.
template <typename Code>
struct IntegerWindowSums {
  Pool2dShape shape;
  const Code* x;
  const std::int32_t* zero_point;
  std::int32_t* sums;
};

// An average of `count` codes: of all pixels, or of a window (affine.h: their multipliers differ).
struct Average {
  enum class Kind { kGlobal, kWindow };
  Kind kind = Kind::kGlobal;
  std::int64_t count = 1;
};

// codes of n sums of codes of in_scale: clamp(rint(float(sum) * multiplier) + zero_point); mask
// (may be null) = packed bits of the unclamped code inside the range.
template <typename Code>
struct RequantizeAverage {
  std::int64_t n;
  Average average;
  const std::int32_t* sums;
  const float *in_scale, *scale;
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;
  std::uint8_t* mask;
};

// out = float(sum) * (in_scale / count): what observers see.
struct DequantizeAverage {
  std::int64_t n, count;
  const std::int32_t* sums;
  const float* in_scale;
  float* out;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    out[i] = dequantize_sum(sums[i], global_average_multiplier(*in_scale, count, 1.0F));
  }
};

using IntegerPoolKernels = JoinedKernels<ForTypes<IntegerWindowSums, std::int8_t, std::uint8_t>,
                                         ForTypes<RequantizeAverage, std::int8_t, std::uint8_t>,
                                         KernelList<DequantizeAverage>>;

}  // namespace steelyard::kernels
