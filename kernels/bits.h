// The bits of a number as another type.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "steelyard/kernels/host_device.h"

namespace steelyard::kernels {

template <typename To, typename From>
STEELYARD_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// The unsigned integer that holds the bits of a float or double.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

}  // namespace steelyard::kernels
