#include "kernels/quantization_params.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/qparams.h"

namespace steelyard::kernels {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument("[quantization_params] " + message);
}

// A scale rounded to the type it is stored in, kept positive and finite there.
double stored_scale(double scale, ValueType type) {
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
      constexpr double kLargest = 0x1.FEp127;
      const double held = std::min(scale, kLargest);
      return static_cast<double>(widen(narrow<BFloat16>(static_cast<float>(held))));
    }
  }
  return scale;
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
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  if (lo.size() != sets || hi.size() != sets) {
    reject("expected " + std::to_string(sets) + " extremes for " + shape_text(shape) + ", got " +
           std::to_string(lo.size()) + " and " + std::to_string(hi.size()));
  }
  QuantizationParams params = *this;
  params.scale.clear();
  params.zero_point.clear();
  for (std::size_t set = 0; set < sets; ++set) {
    if (lo[set] <= hi[set] && (!std::isfinite(lo[set]) || !std::isfinite(hi[set]))) {
      reject("expected finite extremes, set " + std::to_string(set) + " has [" +
             std::to_string(lo[set]) + ", " + std::to_string(hi[set]) + "]");
    }
    const auto wide = qparams_of_range<double>(lo[set], hi[set], range, symmetric);
    const auto narrow_scale = qparams_of_range<float>(lo[set], hi[set], range, symmetric).scale;
    params.zero_point.push_back(wide.zero_point);
    params.scale.push_back(scale_type == ValueType::kF64
                               ? wide.scale
                               : stored_scale(static_cast<double>(narrow_scale), scale_type));
  }
  return params;
}

void QuantizationParams::validate(std::span<const std::int64_t> shape) const {
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  QuantPlan::select(descriptor(QuantOperation::kFakeQuantize, QuantDirection::kForward,
                               {shape.begin(), shape.end()}),
                    DeviceType::kCpu);
  if (scale.size() != sets || zero_point.size() != sets) {
    reject("expected " + std::to_string(sets) + " scales and zero points for " + shape_text(shape) +
           ", got " + std::to_string(scale.size()) + " and " + std::to_string(zero_point.size()));
  }
  for (std::size_t set = 0; set < sets; ++set) {
    if (!valid_qparams(scale[set], zero_point[set], range, symmetric)) {
      reject("set " + std::to_string(set) + ": expected a finite scale > 0 and a zero point " +
             (symmetric ? "of 0" : "within the range") + ", got " + std::to_string(scale[set]) +
             " and " + std::to_string(zero_point[set]));
    }
  }
}

std::int64_t QuantizationParams::num_parameter_sets(std::span<const std::int64_t> shape) const {
  return make_set_map(shape, granularity, options).sets;
}

double QuantizationParams::quantization_error_bound(std::int64_t set) const {
  return scale.at(static_cast<std::size_t>(set)) / 2;
}

double QuantizationParams::smallest_value(std::int64_t set) const {
  const auto index = static_cast<std::size_t>(set);
  return dequantize_code<double>(range.qmin, zero_point.at(index), scale.at(index));
}

double QuantizationParams::largest_value(std::int64_t set) const {
  const auto index = static_cast<std::size_t>(set);
  return dequantize_code<double>(range.qmax, zero_point.at(index), scale.at(index));
}

double QuantizationParams::compression_ratio(std::span<const std::int64_t> shape,
                                             ValueType value_type) const {
  const SetMap map = make_set_map(shape, granularity, options);
  const std::int64_t zero_points = symmetric ? 0 : packed_bytes(code_type, map.sets);
  const std::int64_t stored =
      packed_bytes(code_type, map.elements) + map.sets * value_bytes(scale_type) + zero_points;
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
