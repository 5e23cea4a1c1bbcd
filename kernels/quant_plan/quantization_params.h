// A tensor's quantization as data: code format, granularity, the scales and the range for which
// they were chosen.
//
// The arithmetic is kernels/qparams.h; a plan for the same tensor follows from descriptor().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels {

struct QuantizationParams {
  CodeType code_type = CodeType::kS8;
  CodeRange range{-127, 127};
  bool symmetric = true;  // zero points are 0 and not stored
  Granularity granularity = Granularity::kTensor;
  GranularityOptions options;
  // What the scales are rounded to when they are chosen; f64 only together with f64 values.
  ValueType scale_type = ValueType::kF32;
  std::vector<QParams<double>> qparams;  // one per parameter set, in the sets' order
  // The extremes that from_statistics() was given, one per set; empty for scales from elsewhere.
  std::vector<double> lo;
  std::vector<double> hi;

  // Presets name codes, not scales: these come from from_statistics(), which takes extremes as they
  // are (no outlier is clipped), and are f32 and one for the tensor until a function below or
  // scale_type says otherwise.
  //
  // [-127, 127], zero point 0. The code -128 is left out, so that the range is symmetric: the scale
  // is max|x| / 127 at both ends, -x has the code -q, and two products of codes add up within 16
  // bits (2 * 127 * 127 < 2^15 = 2 * 128 * 128), as some integer kernels add them. Lacks a zero
  // point: one-sided values (after a ReLU) use half of the codes.
  static QuantizationParams int8_symmetric();
  // [0, 255] with a zero point, for activations. Lacks symmetry: in a product of weights the zero
  // point costs a sum over the other operand.
  static QuantizationParams uint8_asymmetric();
  // [-7, 7], two codes to a byte, -8 left out as -128 above. Lacks fine scales: 15 codes for a
  // whole tensor are too few for most weights without block_wise() or channel_wise().
  static QuantizationParams int4_symmetric();

  // Parameters with the same codes and other sharing: a scale per slice of `axis`, per row of the
  // last axis, per `size` neighbours along `axis`, per rectangle of the last two axes.
  QuantizationParams channel_wise(int axis) const;
  QuantizationParams token_wise() const;
  QuantizationParams block_wise(std::int64_t size, int axis = -1) const;
  QuantizationParams block_wise_2d(std::int64_t rows, std::int64_t columns) const;

  // The scales and zero points of a tensor of this shape whose sets have these extremes. f32 and
  // f64: as plans choose them (kernels/qparams.h); f16 and bf16: the scale rounded to its type and
  // the zero point of that scale. A set without values has the extremes 0 and 0.
  // Throws std::invalid_argument where the range does not suit the codes, the counts differ from
  // num_parameter_sets(shape), an extreme is not finite or smallest > largest.
  QuantizationParams from_statistics(std::span<const std::int64_t> shape,
                                     std::span<const double> smallest,
                                     std::span<const double> largest) const;

  // Throws std::invalid_argument naming the first thing that is wrong: the range within the code
  // type, the number of sets, each scale (finite, > 0, in its type too), each zero point (in the
  // range, 0 where symmetric), the number and order of the extremes.
  void validate(std::span<const std::int64_t> shape) const;

  std::int64_t num_parameter_sets(std::span<const std::int64_t> shape) const;
  bool is_per_channel() const { return granularity == Granularity::kChannel; }

  // The largest |x - fake_quantize(x)| of an x in the range that the set's scale came from, or, of
  // scales from elsewhere, between its smallest and largest value; rounding of the arithmetic left
  // out. That is half a step, or what the ends of the range lose where the scale was rounded down
  // or held within its type's limits. Throws std::invalid_argument where there is no such set, as
  // the next two do.
  double quantization_error_bound(std::int64_t set) const;
  // The values that the smallest and the largest code of the set stand for.
  double smallest_value(std::int64_t set) const;
  double largest_value(std::int64_t set) const;

  // Bytes of the values over bytes of the codes with their scales and (unless symmetric) zero
  // points of the codes' width; 1 without elements.
  double compression_ratio(std::span<const std::int64_t> shape,
                           ValueType value_type = ValueType::kF32) const;

  // All of it on one line of `key=value`, numbers in the shortest form that reads back to the same
  // bits: "code_type=s8 range=-127,127 symmetric=true granularity=channel axis=0 ...".
  std::string to_text() const;
  // What to_text() gave. Throws std::invalid_argument naming the key that is missing or wrong.
  static QuantizationParams from_text(std::string_view text);

  // A plan's description of an operation on a tensor quantized so.
  QuantDescriptor descriptor(QuantOperation operation, QuantDirection direction,
                             std::vector<std::int64_t> shape,
                             ValueType value_type = ValueType::kF32) const;
};

}  // namespace steelyard::kernels
