// The arrays of one call of a plan, with their types and lengths, which the plan checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <type_traits>

#include "steelyard/kernels/quant_plan/quant_problem.h"

namespace steelyard::kernels {

enum class ArrayType { kBytes, kF32, kF64, kF16, kBF16, kS8, kU8, kI32, kI64, kBool };

// The type of an array of T. Bytes are memory of any type, of which the length alone is checked.
template <typename T>
constexpr ArrayType array_type() {
  using V = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<V, std::byte>) {
    return ArrayType::kBytes;
  } else if constexpr (std::is_same_v<V, float>) {
    return ArrayType::kF32;
  } else if constexpr (std::is_same_v<V, double>) {
    return ArrayType::kF64;
  } else if constexpr (std::is_same_v<V, Half>) {
    return ArrayType::kF16;
  } else if constexpr (std::is_same_v<V, BFloat16>) {
    return ArrayType::kBF16;
  } else if constexpr (std::is_same_v<V, std::int8_t>) {
    return ArrayType::kS8;
  } else if constexpr (std::is_same_v<V, std::uint8_t>) {
    return ArrayType::kU8;
  } else if constexpr (std::is_same_v<V, std::int32_t>) {
    return ArrayType::kI32;
  } else if constexpr (std::is_same_v<V, std::int64_t>) {
    return ArrayType::kI64;
  } else {
    static_assert(std::is_same_v<V, bool>, "no array of a plan has elements of this type");
    return ArrayType::kBool;
  }
}

constexpr ArrayType array_type_of(ValueType type) {
  constexpr ArrayType kTypes[] = {ArrayType::kF32, ArrayType::kF64, ArrayType::kF16,
                                  ArrayType::kBF16};
  return kTypes[static_cast<int>(type)];
}

constexpr std::int64_t array_bytes(ArrayType type) {
  constexpr std::int64_t kBytes[] = {1, 4, 8, 2, 2, 1, 1, 4, 8, 1};
  return kBytes[static_cast<int>(type)];
}

// Memory of the caller's on the plan's device: `data` is the first element, of which there are
// `count`. Of strided values the count reaches from the first element to the last offset.
struct QuantArray {
  QuantArray() = default;  // not given
  // NOLINTNEXTLINE(google-explicit-constructor): a call names its arrays
  QuantArray(std::nullptr_t) {}
  template <typename T>
  QuantArray(T* first, std::int64_t elements)
      : data(const_cast<std::remove_cv_t<T>*>(first)),
        type(array_type<T>()),
        count(elements),
        writable(!std::is_const_v<T>) {}
  // A vector, array or span.
  // NOLINTBEGIN(google-explicit-constructor): as above
  template <std::ranges::contiguous_range Range>
  requires std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range> QuantArray(
      Range&& range)
      : QuantArray(std::ranges::data(range), static_cast<std::int64_t>(std::ranges::size(range))) {}
  // NOLINTEND(google-explicit-constructor)
  bool given() const { return data != nullptr; }

  void* data = nullptr;
  ArrayType type = ArrayType::kBytes;
  std::int64_t count = 0;
  bool writable = true;
};

// Which are used, and which may be absent, the plan's operation says. Values have the plan's value
// type, shape and strides, the others are dense. S is f64 for f64 values, else f32.
struct QuantArrays {
  QuantArray x = {};                // values
  QuantArray grad_y = {};           // values; of quantize: the gradient of its codes
  QuantArray y = {};                // values, may be x
  QuantArray grad_x = {};           // values, may be grad_y; of dequantize: the gradient of codes
  QuantArray codes = {};            // of quantize and dequantize: int8 or uint8, uint8 where packed
  QuantArray mask = {};             // uint8, 1 bit per element: written forward, read backward
  QuantArray scale = {};            // S [sets]: read, and written unless statistics are given
  QuantArray zero_point = {};       // int32 [sets]; absent means 0 where statistics are given
  QuantArray grad_scale = {};       // S [sets]
  QuantArray grad_zero_point = {};  // S [sets], may be absent
  // int64 [1], may be absent: grows by the NaN that quantize met or, where statistics are taken, by
  // the NaN and infinities that were left out of them.
  QuantArray non_finite_count = {};
  QuantArray range_lo = {};  // S [sets]: the moving average; lo > hi before the first
  QuantArray range_hi = {};
  QuantArray initialized = {};  // uint8 or bool [1]: becomes 1 with the first finite value
  // Switches, uint8 or bool [1], read on the device; absent means on. Observing: of moving
  // averages, the others do not ask. Quantizing: of fake-quantize and of backward calls; off,
  // values and gradients pass.
  QuantArray observing = {};
  QuantArray quantizing = {};
};

// Whether a plan takes the arrays of a call.
struct [[nodiscard]] QuantStatus {
  std::string problem;  // "" where it does
  explicit operator bool() const { return problem.empty(); }
};

}  // namespace steelyard::kernels
