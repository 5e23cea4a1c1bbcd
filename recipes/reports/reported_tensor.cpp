#include "steelyard/recipes/reports/reported_tensor.h"

#include <algorithm>

namespace steelyard {

constexpr int kMostBitsWithLevels = 4;

ReportedTensor reported(const qat::MeasuredTensor& tensor, bool quantizes) {
  ReportedTensor result{.histogram = tensor.histogram, .in_codes = tensor.in_codes};
  if (!quantizes) return result;
  const qat::FakeQuantize& quantizer = *tensor.quantizer;
  const observers::QScheme scheme = quantizer.scheme();
  result.scheme = observers::to_string(scheme);
  result.bits = scheme.bits;
  result.error = tensor.error;
  if (!tensor.error) return result;
  const std::vector<float> scales = quantizer.host_scale();
  const std::int32_t zero_point = quantizer.host_zero_point()[0];
  const auto [smallest, largest] = std::minmax_element(scales.begin(), scales.end());
  result.scales = {*smallest, *largest};
  const kernels::CodeRange codes = quantizer.code_range();
  const auto value = [&](std::int32_t code) {
    return tensor.in_codes ? code : (code - zero_point) * double{scales[0]};
  };
  result.range = {value(codes.qmin), value(codes.qmax)};
  if (scheme.bits <= kMostBitsWithLevels) {
    for (std::int32_t code = codes.qmin; code <= codes.qmax; ++code) {
      result.levels.push_back(value(code));
    }
  }
  return result;
}

}  // namespace steelyard
