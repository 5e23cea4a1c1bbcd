#include "kernels/quantization_params.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <type_traits>

#include "kernels/qparams.h"

namespace steelyard::kernels {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument("[quantization_params] " + message);
}

// A scale rounded to the type it is stored in, kept positive and finite there and, as in
// bounded_scale(), no larger than what keeps its product with the largest |q - z| finite.
double stored_scale(double scale, double largest_operand, ValueType type) {
  switch (type) {
    case ValueType::kF64:
      return scale;
    case ValueType::kF32:
      return static_cast<double>(static_cast<float>(scale));
    case ValueType::kF16: {
      constexpr double kSmallest = 0x1p-24;
      constexpr double kLargest = 65504;
      const double held = std::clamp(scale, kSmallest, kLargest);
      return static_cast<double>(widen(narrow<Half>(static_cast<float>(held))));
    }
    case ValueType::kBF16: {
      const BFloat16 rounded = narrow<BFloat16>(static_cast<float>(scale));
      const double ceiling = static_cast<double>(FLT_MAX) / largest_operand;
      const bool above = static_cast<double>(widen(rounded)) > ceiling;
      const auto bits = static_cast<std::uint16_t>(rounded.bits - (above ? 1 : 0));
      return static_cast<double>(widen(BFloat16{bits}));
    }
  }
  return scale;
}

// Whether a type can hold a scale: rounded to it, it is neither 0 nor infinite.
bool holds_scale(double scale, ValueType type) {
  if (!(scale > 0) || !std::isfinite(scale)) return false;
  return visit_value_type(type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    const auto rounded = widen(narrow<V>(static_cast<ComputeType<V>>(scale)));
    return rounded > 0 && std::isfinite(rounded);
  });
}

const char* name_of_scales(ValueType type) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16"};
  return kNames[static_cast<int>(type)];
}

// The range and the granularity are those of a plan, which names what is wrong with them.
void check_description(const QuantizationParams& params, std::span<const std::int64_t> shape) {
  QuantPlan::select(params.descriptor(QuantOperation::kFakeQuantize, QuantDirection::kForward,
                                      {shape.begin(), shape.end()}),
                    DeviceType::kCpu);
}

std::size_t index_of_set(const QuantizationParams& params, std::int64_t set) {
  const auto sets = static_cast<std::int64_t>(params.scale.size());
  if (set < 0 || set >= sets || params.zero_point.size() != params.scale.size()) {
    reject("expected a set of " + std::to_string(sets) + " scales and " +
           std::to_string(params.zero_point.size()) + " zero points, got set " +
           std::to_string(set));
  }
  return static_cast<std::size_t>(set);
}

}  // namespace

QuantizationParams QuantizationParams::int8_symmetric() { return {}; }

QuantizationParams QuantizationParams::uint8_asymmetric() {
  QuantizationParams params;
  params.code_type = CodeType::kU8;
  params.range = {0, 255};
  params.symmetric = false;
  return params;
}

QuantizationParams QuantizationParams::int4_symmetric() {
  QuantizationParams params;
  params.code_type = CodeType::kS4;
  params.range = {-7, 7};
  return params;
}

QuantizationParams QuantizationParams::channel_wise(int axis) const {
  QuantizationParams params = *this;
  params.granularity = Granularity::kChannel;
  params.options = {.axis = axis};
  return params;
}

QuantizationParams QuantizationParams::token_wise() const {
  QuantizationParams params = *this;
  params.granularity = Granularity::kToken;
  params.options = {};
  return params;
}

QuantizationParams QuantizationParams::block_wise(std::int64_t size, int axis) const {
  QuantizationParams params = *this;
  params.granularity = Granularity::kGroup;
  params.options = {.axis = axis, .group_size = size};
  return params;
}

QuantizationParams QuantizationParams::block_wise_2d(std::int64_t rows,
                                                     std::int64_t columns) const {
  QuantizationParams params = *this;
  params.granularity = Granularity::kBlock;
  params.options = {.block_rows = rows, .block_columns = columns};
  return params;
}

QuantizationParams QuantizationParams::from_statistics(std::span<const std::int64_t> shape,
                                                       std::span<const double> lo,
                                                       std::span<const double> hi) const {
  check_description(*this, shape);
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  if (lo.size() != sets || hi.size() != sets) {
    reject("expected " + std::to_string(sets) + " extremes for " + shape_text(shape) + ", got " +
           std::to_string(lo.size()) + " and " + std::to_string(hi.size()));
  }
  QuantizationParams params = *this;
  params.scale.clear();
  params.zero_point.clear();
  for (std::size_t set = 0; set < sets; ++set) {
    const bool nothing_seen = lo[set] > hi[set];
    if (!nothing_seen && (!std::isfinite(lo[set]) || !std::isfinite(hi[set]))) {
      reject("expected finite extremes, set " + std::to_string(set) + " has [" +
             std::to_string(lo[set]) + ", " + std::to_string(hi[set]) + "]");
    }
    const auto wide = qparams_of_range<double>(lo[set], hi[set], range, symmetric);
    const auto narrow_scale = qparams_of_range<float>(lo[set], hi[set], range, symmetric).scale;
    params.zero_point.push_back(wide.zero_point);
    params.scale.push_back(scale_type == ValueType::kF64
                               ? wide.scale
                               : stored_scale(static_cast<double>(narrow_scale),
                                              largest_operand(range, wide.zero_point), scale_type));
  }
  return params;
}

void QuantizationParams::validate(std::span<const std::int64_t> shape) const {
  check_description(*this, shape);
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  if (scale.size() != sets || zero_point.size() != sets) {
    reject("expected " + std::to_string(sets) + " scales and zero points for " + shape_text(shape) +
           ", got " + std::to_string(scale.size()) + " and " + std::to_string(zero_point.size()));
  }
  for (std::size_t set = 0; set < sets; ++set) {
    if (!valid_qparams(scale[set], zero_point[set], range, symmetric) ||
        !holds_scale(scale[set], scale_type)) {
      char text[32];
      std::snprintf(text, sizeof text, "%.9g", scale[set]);
      reject("set " + std::to_string(set) + ": expected a finite scale > 0 in " +
             name_of_scales(scale_type) + " and a zero point " +
             (symmetric ? "of 0" : "within the range") + ", got " + text + " and " +
             std::to_string(zero_point[set]));
    }
  }
}

std::int64_t QuantizationParams::num_parameter_sets(std::span<const std::int64_t> shape) const {
  return make_set_map(shape, granularity, options).sets;
}

double QuantizationParams::quantization_error_bound(std::int64_t set) const {
  return scale[index_of_set(*this, set)] / 2;
}

double QuantizationParams::smallest_value(std::int64_t set) const {
  const std::size_t index = index_of_set(*this, set);
  return dequantize_code<double>(range.qmin, zero_point[index], scale[index]);
}

double QuantizationParams::largest_value(std::int64_t set) const {
  const std::size_t index = index_of_set(*this, set);
  return dequantize_code<double>(range.qmax, zero_point[index], scale[index]);
}

double QuantizationParams::compression_ratio(std::span<const std::int64_t> shape,
                                             ValueType value_type) const {
  const SetMap map = make_set_map(shape, granularity, options);
  const std::int64_t zero_points = symmetric ? 0 : packed_bytes(code_type, map.sets);
  const std::int64_t stored =
      packed_bytes(code_type, map.elements) + map.sets * value_bytes(scale_type) + zero_points;
  if (stored == 0) return 1;
  return static_cast<double>(map.elements * value_bytes(value_type)) / static_cast<double>(stored);
}

QuantDescriptor QuantizationParams::descriptor(QuantOperation operation, QuantDirection direction,
                                               std::vector<std::int64_t> shape,
                                               ValueType value_type) const {
  QuantDescriptor d;
  d.operation = operation;
  d.direction = direction;
  d.granularity = granularity;
  d.options = options;
  d.value_type = value_type;
  d.code_type = code_type;
  d.range = range;
  d.symmetric = symmetric;
  d.shape = std::move(shape);
  return d;
}

}  // namespace steelyard::kernels
