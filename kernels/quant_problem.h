// What a quantization kernel is told: a resolved plan and the arrays of one call, plain data that
// travels to a device. Made and checked by QuantPlan (kernels/quant_plan.h).
#pragma once

#include <cstdint>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quant_layout.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

enum class QuantOperation { kQuantize, kDequantize, kFakeQuantize };
enum class QuantDirection { kForward, kBackward };

// Where scale and zero point come from.
//   kGiven    the caller's arrays
//   kDynamic  this call's extremes of each set; written to the caller's arrays
//   kCurrent  a moving average that this call's extremes enter before it quantizes: two passes
//   kDelayed  the moving average of earlier calls; this call's extremes enter afterwards: one pass.
//             Values pass unchanged until the average has seen a finite value.
enum class Statistics { kGiven, kDynamic, kCurrent, kDelayed };

struct QuantProblem {
  QuantOperation operation = QuantOperation::kFakeQuantize;
  QuantDirection direction = QuantDirection::kForward;
  Statistics statistics = Statistics::kGiven;
  ValueType value_type = ValueType::kF32;
  CodeType code_type = CodeType::kU8;
  CodeRange range;
  bool symmetric = false;           // of statistics
  double averaging_constant = 0.1;  // of a moving average: the weight of the newest call
  bool parameter_gradients = false;
  double gradient_factor = 1;  // g of LSQ
  SetMap map;
  StrideMap strides;  // of every array of values
};

// The arrays of one call; which are used, and which may be null, QuantPlan says. S = f64 for f64
// values, else f32.
struct QuantArgs {
  const void* x = nullptr;       // values
  const void* grad_y = nullptr;  // values; of quantize: the gradient of its codes
  void* y = nullptr;             // values, may alias x
  void* grad_x = nullptr;        // values, may alias grad_y; of dequantize: the gradient of codes
  void* codes = nullptr;         // packed, dense, apart from values: of quantize and dequantize
  std::uint8_t* mask = nullptr;  // 1 bit per element, dense: written forward, read backward
  void* scale = nullptr;         // S [sets]: read, and written unless statistics are given
  std::int32_t* zero_point = nullptr;  // [sets]; null means 0 where statistics are given
  void* grad_scale = nullptr;          // S [sets]
  void* grad_zero_point = nullptr;     // S [sets], may be null
  // Grows by the NaN that quantize met or, where statistics are taken, by the NaN and infinities
  // that were left out of them; may be null.
  std::int64_t* non_finite_count = nullptr;
  void* range_lo = nullptr;  // S [sets]: the moving average; lo > hi before the first
  void* range_hi = nullptr;
  std::uint8_t* initialized = nullptr;  // becomes 1 when the average has seen a finite value
  // One switch each, read on the device; null means on. Observing: of moving averages, the others
  // do not ask. Quantizing: of fake-quantize and of backward calls; off, values and gradients pass.
  const std::uint8_t* observing = nullptr;
  const std::uint8_t* quantizing = nullptr;
};

// A switch of QuantArgs, read where it lives.
STEELYARD_HOST_DEVICE inline bool is_on(const std::uint8_t* flag) {
  return flag == nullptr || *flag != 0;
}

// The first set whose scale is not finite and positive or whose zero point lies outside the range
// (or is not 0, where symmetric), or -1. zero_point may be null: all 0.
template <typename T>
std::int64_t first_invalid_set(const QuantProblem& problem, const T* scale,
                               const std::int32_t* zero_point) {
  for (std::int64_t set = 0; set < problem.map.sets; ++set) {
    const std::int32_t z = zero_point == nullptr ? 0 : zero_point[set];
    if (!valid_qparams(scale[set], z, problem.range, problem.symmetric)) return set;
  }
  return -1;
}

// One call of a batch.
struct QuantCall {
  const QuantProblem* problem;
  QuantArgs args;
};

}  // namespace steelyard::kernels
