#include "steelyard/kernels/quant_plan/quantization_params.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace steelyard::kernels {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument("[quantization_params] " + message);
}

// A scale rounded to the type it is stored in.
double rounded_scale(double scale, ValueType type) {
  switch (type) {
    case ValueType::kF64:
      return scale;
    case ValueType::kF32:
      return static_cast<double>(static_cast<float>(scale));
    case ValueType::kF16:
      return static_cast<double>(widen(narrow<Half>(static_cast<float>(scale))));
    case ValueType::kBF16:
      return static_cast<double>(widen(narrow<BFloat16>(static_cast<float>(scale))));
  }
  return scale;
}

double next_smaller_bf16(double scale) {
  BFloat16 value = narrow<BFloat16>(static_cast<float>(scale));
  --value.bits;
  return static_cast<double>(widen(value));
}

// The scale of a range [lo, hi] in its type and the zero point of that scale.
QParams<double> choose(double lo, double hi, const QuantizationParams& params) {
  const CodeRange range = params.range;
  const auto wide = qparams_of_range<double>(lo, hi, range, params.symmetric);
  if (params.scale_type == ValueType::kF64) return {wide.scale, wide.zero_point};
  const auto narrow_scale = qparams_of_range<float>(lo, hi, range, params.symmetric).scale;
  double scale = static_cast<double>(narrow_scale);
  if (params.scale_type == ValueType::kF32) return {scale, wide.zero_point};
  if (params.scale_type == ValueType::kF16) scale = std::clamp<double>(scale, 0x1p-24, 65504);
  scale = rounded_scale(scale, params.scale_type);
  const bool moves = !params.symmetric && !is_zero_range(lo, hi);
  const auto zero_point_of = [&](double stored) {
    if (!moves) return wide.zero_point;
    return static_cast<std::int32_t>(zero_point_of_lowest(std::min(lo, 0.0), stored, range));
  };
  // No code may stand for more than FLT_MAX. With a scale in f16 none does.
  while (scale * largest_operand(range, zero_point_of(scale)) > FLT_MAX) {
    scale = next_smaller_bf16(scale);
  }
  return {scale, zero_point_of(scale)};
}

void check_extremes(double lo, double hi, std::size_t set) {
  if (std::isfinite(lo) && std::isfinite(hi) && lo <= hi) return;
  std::ostringstream given;
  given << "expected finite extremes with lo <= hi (0 and 0 of a set without values), set " << set
        << " has [" << lo << ", " << hi << "]";
  reject(given.str());
}

// Throws std::invalid_argument unless plans of such a quantization can be made.
void check_plan(const QuantizationParams& params, std::span<const std::int64_t> shape) {
  QuantPlan::select(params.descriptor(QuantOperation::kFakeQuantize, QuantDirection::kForward,
                                      {shape.begin(), shape.end()}),
                    DeviceType::kCpu);
}

QuantizationParams shared(QuantizationParams params, Granularity granularity,
                          const GranularityOptions& options) {
  params.granularity = granularity;
  params.options = options;
  return params;
}

std::size_t index_of_set(const QuantizationParams& params, std::int64_t set) {
  const auto sets = static_cast<std::int64_t>(params.qparams.size());
  if (set < 0 || set >= sets) {
    reject("expected one of " + std::to_string(sets) + " sets, got set " + std::to_string(set));
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
  return shared(*this, Granularity::kChannel, {.axis = axis});
}

QuantizationParams QuantizationParams::token_wise() const {
  return shared(*this, Granularity::kToken, {});
}

QuantizationParams QuantizationParams::block_wise(std::int64_t size, int axis) const {
  return shared(*this, Granularity::kGroup, {.axis = axis, .group_size = size});
}

QuantizationParams QuantizationParams::block_wise_2d(std::int64_t rows,
                                                     std::int64_t columns) const {
  return shared(*this, Granularity::kBlock, {.block_rows = rows, .block_columns = columns});
}

QuantizationParams QuantizationParams::from_statistics(std::span<const std::int64_t> shape,
                                                       std::span<const double> smallest,
                                                       std::span<const double> largest) const {
  check_plan(*this, shape);
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  if (smallest.size() != sets || largest.size() != sets) {
    reject("expected " + std::to_string(sets) + " extremes for " + shape_text(shape) + ", got " +
           std::to_string(smallest.size()) + " and " + std::to_string(largest.size()));
  }
  QuantizationParams params = *this;
  params.qparams.clear();
  params.lo.assign(smallest.begin(), smallest.end());
  params.hi.assign(largest.begin(), largest.end());
  for (std::size_t set = 0; set < sets; ++set) {
    check_extremes(smallest[set], largest[set], set);
    params.qparams.push_back(choose(smallest[set], largest[set], *this));
  }
  return params;
}

void QuantizationParams::validate(std::span<const std::int64_t> shape) const {
  const auto sets = static_cast<std::size_t>(num_parameter_sets(shape));
  check_plan(*this, shape);
  if (qparams.size() != sets) {
    reject("expected " + std::to_string(sets) + " scales and zero points for " + shape_text(shape) +
           ", got " + std::to_string(qparams.size()));
  }
  if (lo.size() != hi.size() || (!lo.empty() && lo.size() != sets)) {
    reject("expected no extremes or " + std::to_string(sets) + ", got " +
           std::to_string(lo.size()) + " and " + std::to_string(hi.size()));
  }
  for (std::size_t set = 0; set < lo.size(); ++set) check_extremes(lo[set], hi[set], set);
  for (std::size_t set = 0; set < sets; ++set) {
    const auto& [scale, zero_point] = qparams[set];
    if (!valid_qparams(rounded_scale(scale, scale_type), zero_point, range, symmetric)) {
      std::ostringstream given;
      given << scale << " and " << zero_point;
      reject("set " + std::to_string(set) +
             ": expected a finite scale > 0 in its type and a zero point " +
             (symmetric ? "of 0" : "within the range") + ", got " + given.str());
    }
  }
}

std::int64_t QuantizationParams::num_parameter_sets(std::span<const std::int64_t> shape) const {
  return make_set_map(shape, granularity, options).sets;
}

double QuantizationParams::quantization_error_bound(std::int64_t set) const {
  const std::size_t index = index_of_set(*this, set);
  const double half_step = qparams[index].scale / 2;
  if (index >= lo.size() || index >= hi.size()) return half_step;
  const double below = smallest_value(set) - lo[index];
  const double above = hi[index] - largest_value(set);
  return std::max({half_step, below, above});
}

double QuantizationParams::smallest_value(std::int64_t set) const {
  const auto& [scale, zero_point] = qparams[index_of_set(*this, set)];
  return dequantize_code<double>(range.qmin, zero_point, scale);
}

double QuantizationParams::largest_value(std::int64_t set) const {
  const auto& [scale, zero_point] = qparams[index_of_set(*this, set)];
  return dequantize_code<double>(range.qmax, zero_point, scale);
}

double QuantizationParams::compression_ratio(std::span<const std::int64_t> shape,
                                             ValueType value_type) const {
  const SetMap map = make_set_map(shape, granularity, options);
  if (map.elements == 0) return 1;
  const std::int64_t zero_points = symmetric ? 0 : packed_bytes(code_type, map.sets);
  const std::int64_t stored =
      packed_bytes(code_type, map.elements) + map.sets * value_bytes(scale_type) + zero_points;
  return static_cast<double>(map.elements * value_bytes(value_type)) / static_cast<double>(stored);
}

QuantDescriptor QuantizationParams::descriptor(QuantOperation operation, QuantDirection direction,
                                               std::vector<std::int64_t> shape,
                                               ValueType value_type) const {
  return {.spec = {.operation = operation,
                   .direction = direction,
                   .value_type = value_type,
                   .code_type = code_type,
                   .range = range,
                   .symmetric = symmetric},
          .granularity = granularity,
          .options = options,
          .shape = std::move(shape)};
}

}  // namespace steelyard::kernels
