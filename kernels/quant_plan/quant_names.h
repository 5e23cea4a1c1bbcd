// The words for a quantization's parts in identities, messages and text forms.
#pragma once

#include <string>

#include "steelyard/kernels/quant_plan/quant_arrays.h"

namespace steelyard::kernels {

inline const char* name_of(QuantOperation operation) {
  constexpr const char* kNames[] = {"quantize", "dequantize", "fake_quantize"};
  return kNames[static_cast<int>(operation)];
}

inline const char* name_of(Granularity granularity) {
  return kGranularityNames[static_cast<std::size_t>(granularity)].data();
}

inline const char* name_of(ValueType type) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16"};
  return kNames[static_cast<int>(type)];
}

inline const char* name_of(CodeType type) {
  constexpr const char* kNames[] = {"s8", "u8", "s4", "u4", "s2", "u2"};
  return kNames[static_cast<int>(type)];
}

inline const char* name_of(Statistics statistics) {
  constexpr const char* kNames[] = {"given", "dynamic", "current", "delayed"};
  return kNames[static_cast<int>(statistics)];
}

inline const char* name_of(ArrayType type) {
  constexpr const char* kNames[] = {"bytes", "f32", "f64", "f16", "bf16",
                                    "s8",    "u8",  "i32", "i64", "bool"};
  return kNames[static_cast<int>(type)];
}

inline std::string range_text(CodeRange range) {
  const std::int64_t ends[] = {range.qmin, range.qmax};
  return shape_text(ends);
}

}  // namespace steelyard::kernels
