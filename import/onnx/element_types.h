// Types of elements as the attributes of ONNX operations name them (TensorProto.DataType).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace steelyard::imports::element_type {

inline constexpr std::int64_t kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9, kFloat16 = 10,
                              kDouble = 11, kBFloat16 = 16;

inline bool is_floating(std::int64_t type) {
  return type == kFloat || type == kFloat16 || type == kDouble || type == kBFloat16;
}

struct IntegerRange {
  std::int64_t least, most;
};
template <typename T>
constexpr IntegerRange range_of() {
  return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}
// The range of a type of whole numbers, of uint64 that of 63 bits; nothing for other types.
inline std::optional<IntegerRange> integers(std::int64_t type) {
  switch (type) {
    case 2:
      return range_of<std::uint8_t>();
    case 3:
      return range_of<std::int8_t>();
    case 4:
      return range_of<std::uint16_t>();
    case 5:
      return range_of<std::int16_t>();
    case kInt32:
      return range_of<std::int32_t>();
    case kInt64:
      return range_of<std::int64_t>();
    case 12:
      return range_of<std::uint32_t>();
    case 13:
      return IntegerRange{0, std::numeric_limits<std::int64_t>::max()};
    default:
      return std::nullopt;
  }
}

}  // namespace steelyard::imports::element_type
