// Types of elements as the attributes of ONNX operations name them (TensorProto.DataType).
#pragma once

#include <cstdint>

namespace steelyard::imports::element_type {

inline constexpr std::int64_t kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9, kFloat16 = 10,
                              kDouble = 11, kBFloat16 = 16;

inline bool is_floating(std::int64_t type) {
  return type == kFloat || type == kFloat16 || type == kDouble || type == kBFloat16;
}

}  // namespace steelyard::imports::element_type
