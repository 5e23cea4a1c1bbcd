// The C++ types of codes.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "steelyard/framework/tensor/dtype.h"

namespace steelyard {

// Calls f with a null pointer to the C++ type of codes of 8 bits (std::int8_t or std::uint8_t).
template <typename F>
decltype(auto) visit_codes(DType dtype, F&& f) {
  if (dtype == DType::kI8) return f(static_cast<std::int8_t*>(nullptr));
  return f(static_cast<std::uint8_t*>(nullptr));
}
// visit_codes() of all codes: std::int32_t for wide ones.
template <typename F>
decltype(auto) visit_all_codes(DType dtype, F&& f) {
  if (dtype == DType::kI32) return f(static_cast<std::int32_t*>(nullptr));
  return visit_codes(dtype, std::forward<F>(f));
}
template <typename Tag>
using CodeOf = std::remove_pointer_t<std::remove_reference_t<Tag>>;

}  // namespace steelyard
