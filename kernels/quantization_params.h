// A tensor's quantization as data: code format, who shares a scale, and the scales themselves.
//
// The arithmetic is kernels/qparams.h; a plan for the same tensor follows from descriptor().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/quant_plan.h"

namespace steelyard::kernels {

struct QuantizationParams {
  CodeType code_type = CodeType::kS8;
  CodeRange range{-127, 127};
  bool symmetric = true;  // zero points are 0 and not stored
  Granularity granularity = Granularity::kTensor;
  GranularityOptions options;
  // What the scales are rounded to when they are chosen; f64 only together with f64 values.
  ValueType scale_type = ValueType::kF32;
  std::vector<double> scale;             // one per parameter set, in the sets' order
  std::vector<std::int32_t> zero_point;  // the same

  // [-127, 127], zero point 0.
  static QuantizationParams int8_symmetric();
  // [0, 255].
  static QuantizationParams uint8_asymmetric();
  // [-7, 7], two codes to a byte.
  static QuantizationParams int4_symmetric();

  // The same codes with other sharing: a scale per slice of `axis`, per row of the last axis, per
  // `size` neighbours along `axis`, per rectangle of the last two axes.
  QuantizationParams channel_wise(int axis) const;
  QuantizationParams token_wise() const;
  QuantizationParams block_wise(std::int64_t size, int axis = -1) const;
  QuantizationParams block_wise_2d(std::int64_t rows, std::int64_t columns) const;

  // The scales and zero points of a tensor of this shape whose sets have these extremes (lo > hi:
  // nothing finite). Throws std::invalid_argument where the range does not suit the codes, the
  // counts differ from num_parameter_sets(shape) or an extreme is not finite.
  QuantizationParams from_statistics(std::span<const std::int64_t> shape,
                                     std::span<const double> lo, std::span<const double> hi) const;

  // Throws std::invalid_argument naming the first thing that is wrong: the range within the code
  // type, the number of scales, each scale (finite, > 0, in its type too), each zero point (in the
  // range, 0 where symmetric).
  void validate(std::span<const std::int64_t> shape) const;

  std::int64_t num_parameter_sets(std::span<const std::int64_t> shape) const;
  bool is_per_channel() const { return granularity == Granularity::kChannel; }

  // The largest |x - fake_quantize(x)| of an x between the set's smallest and largest value,
  // rounding of the arithmetic left out: half a step. Throws std::invalid_argument where there is
  // no such set, as the next two do.
  double quantization_error_bound(std::int64_t set = 0) const;
  // The values that the smallest and the largest code of the set stand for.
  double smallest_value(std::int64_t set = 0) const;
  double largest_value(std::int64_t set = 0) const;

  // Bytes of the values over bytes of the codes with their scales and (unless symmetric) zero
  // points of the codes' width; 1 without elements.
  double compression_ratio(std::span<const std::int64_t> shape,
                           ValueType value_type = ValueType::kF32) const;

  // A plan's description of an operation on a tensor quantized so.
  QuantDescriptor descriptor(QuantOperation operation, QuantDirection direction,
                             std::vector<std::int64_t> shape,
                             ValueType value_type = ValueType::kF32) const;
};

}  // namespace steelyard::kernels
