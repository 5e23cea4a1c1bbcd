// The arguments of a quantization kernel: a resolved plan and the arrays of one call, as plain data
// that is copied to a device. Made and checked by QuantPlan (kernels/quant_plan/quant_plan.h).
#pragma once

#include <cstdint>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quant_plan/quant_layout.h"
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

// What is computed with which formats.
struct QuantSpec {
  QuantOperation operation = QuantOperation::kFakeQuantize;
  QuantDirection direction = QuantDirection::kForward;
  ValueType value_type = ValueType::kF32;
  CodeType code_type = CodeType::kU8;
  // Within the code type, qmin < qmax: a range of one code has no scale (hi - lo) / (qmax - qmin).
  CodeRange range{0, 255};

  // Forward: any of fake-quantize, kGiven or kDynamic of quantize.
  Statistics statistics = Statistics::kGiven;
  bool symmetric = false;           // scale from max |x|, zero point 0
  double averaging_constant = 0.1;  // kCurrent, kDelayed: in (0, 1]

  // Backward of fake-quantize: also the gradients of scale and zero point (LSQ, arXiv:1902.08153;
  // LSQ+, arXiv:2004.09576), times gradient_factor.
  bool parameter_gradients = false;
  double gradient_factor = 1;
};

struct QuantProblem : QuantSpec {
  SetMap map;
  StrideMap strides;  // of every array of values
};

// The arrays of one call as kernels take them: QuantArrays
// (kernels/quant_plan/quant_arrays.h) after its check, pointers to the types that the plan gives.
struct QuantArgs {
  const void* x = nullptr;
  const void* grad_y = nullptr;
  void* y = nullptr;
  void* grad_x = nullptr;
  void* codes = nullptr;
  std::uint8_t* mask = nullptr;
  void* scale = nullptr;
  std::int32_t* zero_point = nullptr;
  void* grad_scale = nullptr;
  void* grad_zero_point = nullptr;
  std::int64_t* non_finite_count = nullptr;
  void* range_lo = nullptr;
  void* range_hi = nullptr;
  std::uint8_t* initialized = nullptr;
  const std::uint8_t* observing = nullptr;
  const std::uint8_t* quantizing = nullptr;
};

// A switch of QuantArgs, read where it lives.
STEELYARD_HOST_DEVICE inline bool is_on(const std::uint8_t* flag) {
  return flag == nullptr || *flag != 0;
}

// The gradient of one element from that of what an operation made of it.
template <typename T>
STEELYARD_HOST_DEVICE inline T gradient(QuantOperation operation, bool inside, T grad_y, T scale) {
  switch (operation) {
    case QuantOperation::kQuantize:
      return quantize_gradient(inside, grad_y, scale);
    case QuantOperation::kDequantize:
      return dequantize_gradient(grad_y, scale);
    case QuantOperation::kFakeQuantize:
      break;
  }
  return pass_inside(inside, grad_y);
}

// How a set follows its extremes, and where its range, scale and zero point live; the ranges may be
// null where there is no average.
template <typename T>
struct SetRule {
  explicit STEELYARD_HOST_DEVICE SetRule(const QuantProblem& problem, const QuantArgs& args)
      : averages(problem.statistics != Statistics::kDynamic),
        symmetric(problem.symmetric),
        averaging_constant(problem.averaging_constant),
        codes(problem.range),
        range_lo(static_cast<T*>(args.range_lo)),
        range_hi(static_cast<T*>(args.range_hi)),
        scale(static_cast<T*>(args.scale)),
        zero_point(args.zero_point) {}

  bool averages;
  bool symmetric;
  double averaging_constant;
  CodeRange codes;
  T* range_lo;
  T* range_hi;
  T* scale;
  std::int32_t* zero_point;
};

// One call's extremes of a set enter its moving average, where there is one, and give its scale and
// zero point. Always inlined: loops over sets vectorize.
template <typename V>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline void follow_set(
    const SetRule<ComputeType<V>>& rule, std::int64_t set, ComputeType<V> lo, ComputeType<V> hi) {
  using T = ComputeType<V>;
  lo += T(0);  // -0 + 0 = +0
  hi += T(0);
  if (rule.averages) {
    T range_lo = rule.range_lo[set];
    T range_hi = rule.range_hi[set];
    update_range(range_lo, range_hi, lo, hi, rule.averaging_constant);
    rule.range_lo[set] = lo = range_lo;
    rule.range_hi[set] = hi = range_hi;
  }
  const auto chosen = qparams_of_range<V>(static_cast<double>(lo), static_cast<double>(hi),
                                          rule.codes, rule.symmetric);
  rule.scale[set] = chosen.scale;
  rule.zero_point[set] = chosen.zero_point;
}

// An average that has seen a finite value says so; sets may be on many threads.
STEELYARD_HOST_DEVICE inline void note_finite(const QuantProblem& problem, const QuantArgs& args,
                                              bool met) {
  if (!met || problem.statistics == Statistics::kDynamic) return;
  if (*args.initialized == 0) *args.initialized = 1;
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

}  // namespace steelyard::kernels
